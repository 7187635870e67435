"""A beam search over a table of scores: the three best paths at each step, their scores, and the gradient of the best score."""

AXES = {"score": "T=5 S=4 R=4"}


def with_ngraph(ng, score):
    def beam(score):
        best, state = ng.top_k(score["T", 0, "S", 0], "R", "B=3")
        for t in range(1, 5):
            paths = best + ng.take(score["T", t], state, "S")
            best, which = ng.top_k(ng.flatten(paths, "B R"), "B*R", "B=3")
            state = which % 4
        return best

    return beam(score), ng.grad(lambda score: beam(score)[0])(score)


def with_torch(torch, score):
    score.requires_grad_()
    best, state = torch.topk(score[0, 0], 3)
    for t in range(1, 5):
        paths = best[:, None] + score[t][state]
        best, which = torch.topk(paths.flatten(), 3)
        state = which % 4
    (slope,) = torch.autograd.grad(best[0], score)
    return best, slope
