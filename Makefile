# What a developer types. `make` lists the targets from the comments behind them.

PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
NEW = $(if $(PYTHON),,$(error ngraph needs Python 3.11 or later; none is on the path))$(PYTHON) -m venv
# modules are compiled when they are first imported: to compile all of the test environment takes one core a minute and a half
INSTALL = -m pip install --quiet --disable-pip-version-check --no-compile
PYTEST = NGRAPH_CACHE=out/cache .venv-test/bin/python -m pytest
JOBS ?= 2
COUNT ?= 10000
MINUTES ?= 10
SECONDS ?= 120

.DEFAULT_GOAL := help
.PHONY: help run tour test check goldens onnx open fences fuzz torch-ops hunt planted keras-tests bridge-tests bench-tensorflow same docs html bench neighbours sensitivity map clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/installed  ## train a network on MNIST and leave plot, graph and weights in out/
	.venv/bin/python examples/mnist.py

tour: .venv-test/installed  ## every feature once, in under two minutes
	$(PYTEST) tests/tour

test: .venv-test/installed  ## all tests, on JOBS=2 processes
	$(PYTEST) -n $(JOBS) tests

check: .venv-dev/installed  ## lint, format and types
	.venv-dev/bin/ruff check .
	.venv-dev/bin/ruff format --check .
	.venv-dev/bin/mypy

goldens: .venv-test/installed  ## rewrite expected texts and pictures; then read the diff
	$(PYTEST) --update-goldens tests

docs: .venv-test/installed  ## print the pages of ops, of public names and of errors, and the spec's core ops, from the source
	.venv-test/bin/ngraph ops --docs docs
	.venv-test/bin/ngraph ops --api docs/api
	.venv-test/bin/ngraph errors --docs > docs/errors.md

html: .venv-test/installed  ## the documentation as a site in out/html; a warning is an error
	.venv-test/bin/python -m sphinx -W --keep-going -q -j $(JOBS) -d out/doctrees docs out/html

onnx: .venv-test/installed  ## onnx's own tests of a backend, all of them
	ONNX_BACKEND=all $(PYTEST) -n $(JOBS) tests/frontends/onnx/test_backend.py

open: .venv-test/installed  ## every op's samples and gradients with open lengths at all lengths, all dtypes, all processors; SERVING=x.json: files by name
	OPEN=all SERVING=$(or $(SERVING),all) $(PYTEST) -n $(JOBS) tests/every_op/test_open_lengths.py tests/every_op/test_serving_lengths.py

fences: .venv-test/installed  ## the models of bench/serving.py at full size between guard pages, at lengths 1 to 70; SERVING=x.json: files by name
	SERVING=$(SERVING) $(PYTEST) tests/every_op/test_serving_lengths.py

fuzz: .venv-test/installed  ## COUNT=10000 ONNX files changed at random: each runs or is refused; other ends are told
	NGRAPH_CACHE=out/cache .venv-test/bin/python tests/frontends/onnx/mutations.py $(COUNT) 0

torch-ops: .venv-test/installed  ## PyTorch's table of ops, on JOBS=2 processes (an hour of processor time); prints docs/torch.md's table from what ran
	for kind in "" --gradients "--dtype int64" "--dtype bool" "--dtype float64" "--dtype bfloat16" "--dtype float16"; do \
		seq 0 $$(($(JOBS) - 1)) | NGRAPH_CACHE=out/cache xargs -P $(JOBS) -I{} \
			.venv-test/bin/python tests/frontends/torch/opinfo.py --part {}/$(JOBS) --into out/opinfo $$kind || exit 1; done
	.venv-test/bin/python tests/frontends/torch/opinfo.py --write out/opinfo

hunt: .venv-test/installed  ## MINUTES=10 of random programs, kernels, derivatives, layers, files, from seed FIRST; prints seeds and finds
	NGRAPH_CACHE=out/cache .venv-test/bin/python -m hunt --minutes $(MINUTES) --jobs $(JOBS) $(if $(FIRST),--first $(FIRST)) $(if $(MOST),--most $(MOST)) $(KINDS)

planted: .venv-test/installed  ## SECONDS=120 for each planted mistake: what of them the hunt finds; WHICH=names or kinds
	NGRAPH_CACHE=off .venv-test/bin/python -m hunt.planted --seconds $(SECONDS) --jobs $(JOBS) $(WHICH)

keras-tests: .venv-keras/installed  ## Keras's own tests on ngraph and on JAX, and what differs; PARTS=folders of keras/src
	.venv-keras/bin/python tests/keras/theirs.py run ngraph out/keras-ngraph.jsonl $(PARTS)
	.venv-keras/bin/python tests/keras/theirs.py run jax out/keras-jax.jsonl $(PARTS)
	.venv-keras/bin/python tests/keras/theirs.py compare out/keras-ngraph.jsonl out/keras-jax.jsonl

bridge-tests: .venv-tf/installed  ## the bridge's tests, in an environment with TensorFlow 2.21
	NGRAPH_CACHE=out/cache .venv-tf/bin/python -m pytest tests/bridge

bench-tensorflow: .venv-tf/installed  ## fit on Keras with TensorFlow, the bridge on against off; ROWS=names
	NGRAPH_CACHE=out/cache .venv-tf/bin/python bench/tensorflow.py $(ROWS)

same: .venv-test/installed  ## REV=x: show how programs and generated code of small models changed since revision x
	@test -n "$(REV)" || { echo "since when? make same REV=main"; exit 2; }
	@rm -rf out/same && mkdir -p out/same/source && git archive $(REV) ngraph | tar -x -C out/same/source
	@NGRAPH_CACHE=off NGRAPH_TARGET=x86-64-v3 PYTHONPATH=out/same/source .venv-test/bin/python tests/goldens/texts.py out/same/was --kernels
	@NGRAPH_CACHE=off NGRAPH_TARGET=x86-64-v3 PYTHONPATH=. .venv-test/bin/python tests/goldens/texts.py out/same/is --kernels
	@diff -ru out/same/was out/same/is && echo "the same as at $(REV)"

bench: .venv/installed  ## ratios against NumPy and PyTorch beside the last tracked ones, and what the tool itself costs
	.venv/bin/python bench/ratios.py
	.venv/bin/python bench/tool.py

neighbours: .venv/installed  ## the peer benchmark's workloads at nearby sizes, and how time grows with a size; PEERBENCH says where it is
	.venv/bin/python bench/neighbours.py --kernels
	.venv/bin/python bench/neighbours.py --growth

sensitivity: .venv/installed  ## each tuned number halved and doubled: which plans and kernels change, and what time; NAMES=some; PEERBENCH
	.venv/bin/python bench/sensitivity.py --save $(NAMES) && .venv/bin/python bench/sensitivity.py --time --save && .venv/bin/python bench/sensitivity.py --table

map: .venv/installed  ## draw which room imports which into out/rooms.svg, and name any import that goes up
	@mkdir -p out
	@.venv/bin/ngraph rooms -o out/rooms.svg

clean:  ## remove the virtual environments and what the targets made
	rm -rf .venv .venv-test .venv-dev out

.venv/installed: pyproject.toml
	$(NEW) .venv
	.venv/bin/python $(INSTALL) -e '.[viz]'
	@touch $@

.venv-test/installed: pyproject.toml
	$(NEW) .venv-test
	.venv-test/bin/python $(INSTALL) -e '.[test,viz,docs]'
	@touch $@

.venv-keras/installed: pyproject.toml
	$(NEW) .venv-keras
	.venv-keras/bin/python $(INSTALL) -e '.[keras]' keras==3.15.1 'jax[cpu]==0.10.2' scipy pytest
	@mkdir -p out && touch $@

.venv-tf/installed: pyproject.toml
	$(NEW) .venv-tf
	.venv-tf/bin/python $(INSTALL) -e '.[tf]' tensorflow-cpu==2.21.0 pytest
	@touch $@

.venv-dev/installed: pyproject.toml
	$(NEW) .venv-dev
	.venv-dev/bin/python $(INSTALL) -e '.[dev]'
	@touch $@
