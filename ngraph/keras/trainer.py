"""Keras's `fit`, `evaluate` and `predict`: each step is one computation, compiled once with the batch open."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras.src import backend, tree
from keras.src import callbacks as callbacks_module
from keras.src import optimizers as optimizers_module
from keras.src.backend import config
from keras.src.trainers import trainer as base_trainer
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.utils import traceback_utils
from keras.src.utils.python_utils import pythonify_logs

from ngraph.keras import numpy
from ngraph.keras.convert import is_tensor
from ngraph.keras.gradients import value_and_grad
from ngraph.keras.loops import scan
from ngraph.keras.steps import CompiledFunction


class NgraphTrainer(base_trainer.Trainer):
    """The training part of a Keras model.

    train_step(data), test_step(data) and predict_step(data) may be overridden; they read variables and assign them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.train_function: Any = None
        self.test_function: Any = None
        self.predict_function: Any = None

    def _resolve_auto_jit_compile(self) -> str:
        return "auto"  # steps that can be compiled are, whatever XLA can

    @base_trainer.Trainer.jit_compile.setter
    def jit_compile(self, value: Any) -> None:
        self._jit_compile = value

    # ---- steps
    def _output_for(self, x: Any, training: bool) -> Any:
        return self(x, training=training) if self._call_has_training_arg else self(x)

    def _tracked_loss(self, x: Any, y: Any, sample_weight: Any, training: bool) -> tuple[Any, Any]:
        """Returns the loss, which is added to its mean, and the predictions."""
        y_pred = self._output_for(x, training)
        loss = self._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        many = next(i for i in tree.flatten(x) if i is not None).shape[0]
        self._loss_tracker.update_state(loss, sample_weight=many)
        return loss, y_pred

    def train_step(self, data: Any) -> Any:
        """Returns the logs of a step of training: forward, loss, derivatives, the optimizer's update, metrics."""
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        weights = self.trainable_weights
        if not weights:
            warnings.warn("The model does not have any trainable weights.", stacklevel=2)
            _, y_pred = self._tracked_loss(x, y, sample_weight, True)
            return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

        def forward(_: Any) -> Any:
            loss, y_pred = self._tracked_loss(x, y, sample_weight, True)
            return (loss if self.optimizer is None else self.optimizer.scale_loss(loss)), y_pred

        (_, y_pred), gradients = value_and_grad(forward, has_aux=True)(list(weights))
        self.optimizer.apply(gradients, weights)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def test_step(self, data: Any) -> Any:
        """Returns the logs of a step of evaluation."""
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        _, y_pred = self._tracked_loss(x, y, sample_weight, False)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def predict_step(self, data: Any) -> Any:
        """Returns the predictions for a batch."""
        x, _, _ = data_adapter_utils.unpack_x_y_sample_weight(data)
        return self._output_for(x, False)

    # ---- functions
    def _made(self, step: Callable[[Any], Any], joined: bool) -> Callable[[Sequence[Any]], Any]:
        """Returns a function of a list of batches: compiled, by NumPy calls, or op by op, as `compile` said.

        joined: its results are those of all batches, one after another; else those of the last.
        """

        def one(data: Any) -> Any:
            found = step(data)
            self._clear_losses()
            return found

        def several(*batches: Any) -> Any:
            stacked = tree.map_structure(lambda *xs: None if xs[0] is None else numpy.stack(xs), *batches)
            _, found = scan(lambda carry, data: (carry, one(data)), (), stacked)
            if joined:
                return tree.map_structure(lambda y: numpy.reshape(y, (-1, *y.shape[2:])), found)
            return tree.map_structure(lambda y: y[-1], found)

        one.__name__ = several.__name__ = step.__name__
        on = "cpu" if self.jit_compile else "direct"
        run, loop = [CompiledFunction(f, on, open_batch=True, at_once=self.jit_compile is not True) for f in (one, several)]
        run.runs_at_once = loop.runs_at_once = self.run_eagerly

        def call(batches: Sequence[Any]) -> Any:
            if not loop.runs_at_once and len(batches) > 1 and len({_shapes(b) for b in batches}) == 1:
                return loop(*batches)
            found = [run(data) for data in batches]
            return found[-1] if not joined or len(found) == 1 else tree.map_structure(lambda *ys: numpy.concatenate(ys), *found)

        call.compiled = [run, loop]  # type: ignore[attr-defined]  # for those who count compilations
        return call

    def make_train_function(self, force: bool = False) -> None:
        if self.train_function is None or force:
            self.train_function = self._made(self.train_step, False)

    def make_test_function(self, force: bool = False) -> None:
        if self.test_function is None or force:
            self.test_function = self._made(self.test_step, False)

    def make_predict_function(self, force: bool = False) -> Any:
        if self.predict_function is None or force:
            self.predict_function = self._made(self.predict_step, True)
        return self.predict_function

    def compilations(self) -> int:
        """Returns how many computations its steps have been compiled to."""
        made = [f.compiled for f in (self.train_function, self.test_function, self.predict_function) if f is not None]
        return sum(c.compilations for pair in made for c in pair if isinstance(c, CompiledFunction))

    def _build_on(self, data: Any) -> None:
        """Creates the variables of a model by the shapes of a batch."""
        if not all(layer.built for layer in self._flatten_layers()):
            x, _, _ = data_adapter_utils.unpack_x_y_sample_weight(data)
            backend.compute_output_spec(
                lambda v: self._output_for(v, False),
                tree.map_structure(lambda v: None if v is None else backend.KerasTensor(v.shape, backend.standardize_dtype(v.dtype)), x),
            )

    def _listed(self, callbacks: Any, iterator: EpochIterator, verbose: Any, epochs: int, history: bool) -> Any:
        if isinstance(callbacks, callbacks_module.CallbackList):
            return callbacks
        more = {"add_history": True} if history else {}
        return callbacks_module.CallbackList(
            callbacks, add_progbar=verbose != 0, verbose=verbose, epochs=epochs, steps=iterator.num_batches, model=self, **more
        )

    def _batches(
        self, x: Any, y: Any, sample_weight: Any, batch_size: Any, steps: Any, shuffle: bool = False, **more: Any
    ) -> EpochIterator:
        """Returns data of any kind as an iterator of lists of batches, one list for each execution."""
        return EpochIterator(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps,
            shuffle=shuffle,
            steps_per_execution=self.steps_per_execution,
            **more,
        )

    # ---- loops
    @traceback_utils.filter_traceback
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: Any = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: Any = None,
        validation_steps: Any = None,
        validation_batch_size: Any = None,
        validation_freq: Any = 1,
    ) -> Any:
        """Trains the model, as Keras documents it, and returns the history."""
        self._assert_compile_called("fit")
        most = config.max_epochs() if hasattr(config, "max_epochs") else None
        if most and most < epochs:
            warnings.warn(f"Limiting epochs to {most}", stacklevel=2)
            epochs = most
        self._eval_epoch_iterator = None
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
                (x, y, sample_weight), validation_split=validation_split
            )
        iterator = self._batches(x, y, sample_weight, batch_size, steps_per_epoch, shuffle=shuffle, class_weight=class_weight)
        self._symbolic_build(iterator=iterator)
        iterator.reset()
        callbacks = self._listed(callbacks, iterator, verbose, epochs, True)
        self.make_train_function()
        self.stop_training = False
        training_logs: Any = {}
        callbacks.on_train_begin()
        for epoch in range(self._initial_epoch or initial_epoch, epochs):
            self.reset_metrics()
            callbacks.on_epoch_begin(epoch)
            logs: Any = {}
            for begin, end, batches in iterator:
                callbacks.on_train_batch_begin(begin)
                logs = self.train_function(batches)
                callbacks.on_train_batch_end(end, logs)
                if self.stop_training:
                    break
            epoch_logs = dict(self._get_metrics_result_or_logs(logs))
            if validation_data is not None and self._should_eval(epoch, validation_freq):
                epoch_logs.update(self._validated(validation_data, validation_batch_size or batch_size, validation_steps, callbacks))
            callbacks.on_epoch_end(epoch, epoch_logs)
            training_logs = epoch_logs
            if self.stop_training:
                break
        if isinstance(self.optimizer, optimizers_module.Optimizer) and epochs > 0:
            self.optimizer.finalize_variable_values(self.trainable_weights)
        self._eval_epoch_iterator = None
        callbacks.on_train_end(logs=training_logs)
        return self.history

    def _validated(self, data: Any, batch_size: Any, steps: Any, callbacks: Any) -> dict[str, Any]:
        """Returns the logs of an evaluation in the middle of training."""
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        if self._eval_epoch_iterator is None:
            self._eval_epoch_iterator = self._batches(x, y, sample_weight, batch_size, steps)
        more: Any = {"sample_weight": sample_weight, "callbacks": callbacks, "return_dict": True, "_use_cached_eval_dataset": True}
        logs = self.evaluate(x, y, batch_size, steps=steps, **more)
        return {f"val_{name}": value for name, value in logs.items()}

    @traceback_utils.filter_traceback
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: Any = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: Any = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Returns the loss and the metrics, as Keras documents it."""
        self._assert_compile_called("evaluate")
        cached = kwargs.pop("_use_cached_eval_dataset", False)
        if kwargs:
            raise ValueError(f"Arguments not recognized: {kwargs}")
        iterator = self._eval_epoch_iterator if cached else None
        if iterator is None:
            iterator = self._batches(x, y, sample_weight, batch_size, steps)
        self._symbolic_build(iterator=iterator)
        iterator.reset()
        callbacks = self._listed(callbacks, iterator, verbose, 1, False)
        self.make_test_function()
        self.stop_evaluating = False
        callbacks.on_test_begin()
        logs: Any = {}
        self.reset_metrics()
        for begin, end, batches in iterator:
            callbacks.on_test_batch_begin(begin)
            logs = self.test_function(batches)
            callbacks.on_test_batch_end(end, logs)
            if self.stop_evaluating:
                break
        logs = pythonify_logs(self._get_metrics_result_or_logs(logs))
        callbacks.on_test_end(logs)
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    @traceback_utils.filter_traceback
    def predict(self, x: Any, batch_size: Any = None, verbose: Any = "auto", steps: Any = None, callbacks: Any = None) -> Any:
        """Returns the predictions for all batches as NumPy arrays."""
        iterator = self._batches(x, None, None, batch_size, steps)
        if not all(layer.built for layer in self._flatten_layers()):
            self._build_on(next(iter(iterator))[2][0])
            iterator.reset()
        callbacks = self._listed(callbacks, iterator, verbose, 1, False)
        self.make_predict_function()
        self.stop_predicting = False
        callbacks.on_predict_begin()
        outputs: Any = None
        found: Any = None
        for begin, end, batches in iterator:
            callbacks.on_predict_batch_begin(begin)
            found = self.predict_function(batches)
            if outputs is None:
                outputs = tree.map_structure(lambda y: [y], found)
            else:
                tree.map_structure_up_to(found, lambda ys, y: ys.append(y), outputs, found)
            callbacks.on_predict_batch_end(end, {"outputs": found})
            if self.stop_predicting:
                break
        callbacks.on_predict_end()
        return tree.map_structure_up_to(found, lambda ys: np.concatenate([np.asarray(y) for y in ys]), outputs)

    # ---- one batch
    def _weighted(self, y: Any, sample_weight: Any, class_weight: Any) -> Any:
        if class_weight is None:
            return sample_weight
        if sample_weight is not None:
            raise ValueError("Arguments `sample_weight` and `class_weight` cannot be specified at the same time.")
        return data_adapter_utils.class_weight_to_sample_weights(y, class_weight)

    def _logged(self, logs: Any, return_dict: bool) -> Any:
        logs = pythonify_logs(logs)
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False) -> Any:
        """Returns the logs of one step of training."""
        self._assert_compile_called("train_on_batch")
        data = _arrays((x, y, self._weighted(y, sample_weight, class_weight)))
        self._symbolic_build(data_batch=data)
        self.make_train_function()
        self.reset_metrics()
        return self._logged(self.train_function([data]), return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Returns the logs of one step of evaluation."""
        self._assert_compile_called("test_on_batch")
        data = _arrays((x, y, sample_weight))
        self._symbolic_build(data_batch=data)
        self.make_test_function()
        self.reset_metrics()
        return self._logged(self.test_function([data]), return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """Returns the predictions for one batch as NumPy arrays."""
        data = (_arrays(x),)
        self._build_on(data)
        self.make_predict_function()
        return tree.map_structure(lambda y: np.array(y), self.predict_function([data]))


def _arrays(data: Any) -> Any:
    """Returns data with its leaves as arrays or tensors."""
    return tree.map_structure(lambda v: v if v is None or is_tensor(v) or hasattr(v, "dtype") else np.asarray(v), data)


def _shapes(data: Any) -> Any:
    return tuple([None if v is None else tuple(v.shape) for v in tree.flatten(data)])
