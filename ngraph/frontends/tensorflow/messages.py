"""Messages of TensorFlow's files, as classes in a descriptor pool of their own.

The table gives for each message its fields: name, number, type; `*` marks a repeated field, `map<…>` a map from strings. The numbers are
those of TensorFlow's .proto files (tensorflow/core/protobuf and tensorflow/core/framework). Fields that nothing here reads are left out:
a parser skips what it does not know. The pool is private, so TensorFlow itself may be imported in the same process.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from ngraph.errors import ParseError
from ngraph.frontends.tensorflow.dtypes import NUMBERS

MESSAGES = """
SavedModel        saved_model_schema_version 1 int64, meta_graphs 2 *MetaGraphDef
MetaGraphDef      meta_info_def 1 MetaInfoDef, graph_def 2 GraphDef, saver_def 3 SaverDef, collection_def 4 map<CollectionDef>,
                  signature_def 5 map<SignatureDef>, asset_file_def 6 *AssetFileDef, object_graph_def 7 ObjectGraph
ObjectGraph       nodes 1 *Object, concrete_functions 2 map<BoundFunction>
Object            children 1 *ObjectReference, attributes 2 *SavedAttribute
ObjectReference   node_id 1 int32, local_name 2 string
SavedAttribute    name 1 string, full_name 2 string, checkpoint_key 3 string
BoundFunction     bound_inputs 2 *int32
MetaInfoDef       tags 4 *string, tensorflow_version 5 string
SaverDef          filename_tensor_name 1 string, save_tensor_name 2 string, restore_op_name 3 string
CollectionDef     node_list 1 NodeList, bytes_list 2 BytesList, any_list 5 AnyList
AnyList           value 1 *Any
Any               type_url 1 string, value 2 bytes
NodeList          value 1 *string
BytesList         value 1 *bytes
FloatList         value 1 *float
Int64List         value 1 *int64
Example           features 1 Features
Features          feature 1 map<Feature>
Feature           bytes_list 1 BytesList, float_list 2 FloatList, int64_list 3 Int64List
AssetFileDef      tensor_info 1 TensorInfo, filename 2 string
VariableDef       variable_name 1 string
SignatureDef      inputs 1 map<TensorInfo>, outputs 2 map<TensorInfo>, method_name 3 string
TensorInfo        name 1 string, dtype 2 int32, tensor_shape 3 TensorShapeProto
TensorShapeProto  dim 2 *Dim, unknown_rank 3 bool
Dim               size 1 int64, name 2 string
VersionDef        producer 1 int32, min_consumer 2 int32
GraphDef          node 1 *NodeDef, library 2 FunctionDefLibrary, versions 4 VersionDef
NodeDef           name 1 string, op 2 string, input 3 *string, device 4 string, attr 5 map<AttrValue>
AttrValue         list 1 ListValue, s 2 bytes, i 3 int64, f 4 float, b 5 bool, type 6 int32, shape 7 TensorShapeProto, tensor 8 TensorProto,
                  placeholder 9 string, func 10 NameAttrList
ListValue         s 2 *bytes, i 3 *int64, f 4 *float, b 5 *bool, type 6 *int32, shape 7 *TensorShapeProto, tensor 8 *TensorProto,
                  func 9 *NameAttrList
NameAttrList      name 1 string, attr 2 map<AttrValue>
TensorProto       dtype 1 int32, tensor_shape 2 TensorShapeProto, tensor_content 4 bytes, float_val 5 *float, double_val 6 *double,
                  int_val 7 *int32, string_val 8 *bytes, scomplex_val 9 *float, int64_val 10 *int64, bool_val 11 *bool,
                  dcomplex_val 12 *double, half_val 13 *int32, uint32_val 16 *uint32, uint64_val 17 *uint64, float8_val 18 bytes
FunctionDefLibrary  function 1 *FunctionDef
FunctionDef       signature 1 OpDef, node_def 3 *NodeDef, ret 4 map<string>, attr 5 map<AttrValue>, control_ret 6 map<string>
OpDef             name 1 string, input_arg 2 *ArgDef, output_arg 3 *ArgDef, control_output 20 *string
ArgDef            name 1 string, type 3 int32, type_attr 4 string, number_attr 5 string, type_list_attr 6 string
BundleHeaderProto num_shards 1 int32, endianness 2 int32, version 3 VersionDef
BundleEntryProto  dtype 1 int32, shape 2 TensorShapeProto, shard_id 3 int32, offset 4 int64, size 5 int64, crc32c 6 fixed32,
                  slices 7 *TensorSliceProto
TensorSliceProto  extent 1 *Extent
Extent            start 1 int64, length 2 int64
"""

_FIELD = descriptor_pb2.FieldDescriptorProto
_PLAIN = "bool bytes double fixed32 float int32 int64 string uint32 uint64"
_TYPES = {name: getattr(_FIELD, f"TYPE_{name.upper()}") for name in _PLAIN.split()}
_ONE_OF = {"AttrValue": "value", "Extent": "has_length", "CollectionDef": "kind", "Feature": "kind"}  # messages of which one field is set
_OUTSIDE = {("Extent", "start")}  # fields of these that stand beside the choice


@cache
def classes() -> dict[str, Any]:
    """Returns the class of each message, by its name."""
    file = descriptor_pb2.FileDescriptorProto(name="ngraph_tensorflow.proto", package="tensorflow", syntax="proto3")
    for row in MESSAGES.replace("\n                  ", " ").strip().splitlines():
        name, _, fields = row.partition(" ")
        message = file.message_type.add(name=name)
        if name in _ONE_OF:
            message.oneof_decl.add(name=_ONE_OF[name])
        for field in fields.split(","):
            key, number, kind = field.split()
            made = message.field.add(name=key, number=int(number), label=_FIELD.LABEL_OPTIONAL)
            if kind.startswith("map<"):
                entry = message.nested_type.add(name=f"{key.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
                _typed(entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL), kind[4:-1])
                made.label, kind = _FIELD.LABEL_REPEATED, f"{name}.{entry.name}"
            elif kind.startswith("*"):
                made.label, kind = _FIELD.LABEL_REPEATED, kind[1:]
            elif name in _ONE_OF and (name, key) not in _OUTSIDE:
                made.oneof_index = 0
            _typed(made, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [message.name for message in file.message_type]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}")) for name in names}


def _typed(field: Any, kind: str) -> None:
    """Sets the type of a field, one of Protocol Buffers' own or a message of the table."""
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".tensorflow.{kind}"


def parsed(name: str, data: Any, what: str) -> Any:
    """Returns the message `name` that bytes hold. Raises ParseError for bytes that are none; `what` is what errors call them."""
    made = classes()[name]()
    try:
        made.ParseFromString(bytes(data))
    except DecodeError as error:
        raise ParseError(f"{what} is not a valid {name}: {error}", fix="is the file damaged?") from error
    return made


def parsed_text(name: str, text: str, what: str) -> Any:
    """Returns the message `name` that a text in Protocol Buffers' text format holds. Raises ParseError for a text that is none.

    Enums stand in such files by name; `DT_FLOAT` is read as its number.
    """
    for word, number in sorted(NUMBERS.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(f": {word}", f": {number}")
    made = classes()[name]()
    try:
        text_format.Parse(text, made, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise ParseError(f"{what} is not a valid {name} in text: {error}", fix="is the file damaged?") from error
    return made
