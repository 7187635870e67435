"""Fine-tuning a BERT of transformers in PyTorch, compiled by ngraph: three graphs, no break, no op left to torch, the losses of eager.

    python examples/torch_finetune.py [--quick] [--inductor]

Prints the loss of each step in eager and compiled, the seconds per step of each (medians), and what ran where.
"""

import argparse
import copy
import functools
import statistics
import time

import torch
import transformers

import ngraph as ng


def model(quick):
    sizes = (64, 2, 2, 128, 200) if quick else (256, 4, 4, 1024, 8000)
    width, layers, heads, inner, words = sizes
    config = transformers.BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        num_labels=3,
        problem_type="single_label_classification",  # else the model sets it in the first call, and that is compiled anew
        hidden_dropout_prob=0.0,  # torch draws the random numbers of dropout, so that they are those of eager
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForSequenceClassification(config).train()


def steps(net, batches, compiled):
    """Trains with AdamW. Returns losses and the seconds of each step. compiled: a function of the model, or of the optimizer's step."""
    optimizer, losses, seconds = torch.optim.AdamW(net.parameters(), 1e-3), [], []
    forward, step = compiled(net), compiled(optimizer.step)
    for words, labels in batches:
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = forward(input_ids=words, labels=labels).loss
        loss.backward()
        step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller model, fewer steps")
    parser.add_argument("--inductor", action="store_true", help="time torch's own compiler, too; it needs a C++ compiler")
    options = parser.parse_args()
    torch.manual_seed(0)
    first = model(options.quick)
    words = first.config.vocab_size
    size, length, count = (4, 16, 6) if options.quick else (8, 64, 12)
    batches = [(torch.randint(words, (size, length)), torch.randint(3, (size,))) for _ in range(count)]
    found = {}
    ways = {"eager": None, "ngraph": ng.torch.backend} | ({"inductor": "inductor"} if options.inductor else {})
    for name, backend in ways.items():
        net = copy.deepcopy(first)
        compiled = (lambda f: f) if backend is None else functools.partial(torch.compile, backend=backend)
        found[name] = steps(net, batches, compiled)
    for k, (eager, ours) in enumerate(zip(found["eager"][0], found["ngraph"][0], strict=True)):
        print(f"step {k}: loss {ours:.6f}, in eager {eager:.6f}")
        assert abs(ours - eager) < 1e-4, (ours, eager)
    for name, (_, seconds) in found.items():
        print(f"{name}: {1e3 * statistics.median(seconds[2:]):.1f} ms per step, the first step {seconds[0]:.1f} s")
    report = ng.torch.report()
    print(report)
    assert not report.in_torch


if __name__ == "__main__":
    main()
