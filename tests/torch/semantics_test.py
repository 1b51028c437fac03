"""A table of programs in which hooks for saved tensors could change the behaviour of PyTorch. With tier "native" each row must
give the same result as without hooks, errors included. The exceptions are listed: rows in which tier "python" raises an error,
and changes that PyTorch does not count.

Each row runs several times: once while its step is learned, then by a plan. In the first run tensors must leave and come back
from the host, unless the row is listed with a reason."""

import contextlib
import gc
import re
import threading
import unittest
import warnings
import weakref

import torch
from own_hooks import OwnHooks
from torch.utils import checkpoint

import vdnn.torch

RUNS = 3

# In a first step, this window makes the hooks release the source of each tensor at its save. So its reader gets a copy from the
# host, unless the program holds the tensor.
EVERYTHING_LEAVES = {"budget": 0, "min_size": 1, "window": 1}


def random_leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def outcome_of(work):
    """The result, or the text of an error that a row expects."""
    try:
        return work()
    except RuntimeError as error:
        return str(error)


def changed_in_place(hooks):
    x = random_leaf(64)
    with hooks():
        a = x * 2
        y = a.pow(2)
        a.add_(1)
    y.sum().backward()
    return x.grad


def changed_output(hooks):
    x = random_leaf(64)
    with hooks():
        y = x.sigmoid()
        z = y * 2
        y.add_(1)
    z.sum().backward()
    return x.grad


def changed_view(hooks):
    x = random_leaf(64)
    with hooks():
        a = x * 2
        y = a[:32].exp().sin()
        a.add_(1)
        z = a.pow(2)
        a.mul_(2)
    y.sum().backward()
    z.sum().backward()
    return x.grad


def changed_by_data(hooks, held, changed=True):
    """PyTorch does not count a change by `.data`, so it raises no error."""
    x = random_leaf(64)
    with hooks():
        a = x * 2
        y = a.pow(2).sin().sin()
        if changed:
            a.data.add_(1)
        if not held:
            del a
    y.sum().backward()
    return x.grad


def alias_with_its_own_counter(hooks, changed):
    """PyTorch counts changes of a tensor and of its `.data` separately, and changes of a tensor and of `.detach()` together."""
    x, factor = random_leaf(64), random_leaf(64)
    with hooks():
        other = (x * 3).cos()  # leaves and comes back
        a = x * 2
        y = a.sin()
        if changed == "tensor, before the alias is saved":
            with torch.no_grad():
                a.add_(1)
        alias = a.detach() if changed == "detached" else a.data
        z = factor * alias
    with torch.no_grad():
        if changed == "tensor":
            a.add_(1)
        elif changed in ("alias", "detached"):
            alias.add_(1)
    outputs = [(other, x), (z, factor)] if changed == "alias" else [(other, x), (z, factor), (y, x)]
    return [outcome_of(lambda: torch.autograd.grad(output.sum(), leaf)[0]) for output, leaf in outputs]


def changed_small_tensor(hooks):
    x = random_leaf(1)
    with hooks():
        w = torch.ones(1)
        y = x * w
        w.add_(1)
    y.backward()
    return x.grad


def relu_in_place(hooks):
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(True), torch.nn.Conv2d(8, 8, 3)
    )
    with hooks():
        loss = network(torch.randn(2, 3, 8, 8)).sum()
    loss.backward()
    return [parameter.grad for parameter in network.parameters()]


def retained_graph(hooks):
    x = random_leaf(64, 64)
    with hooks():
        y = (x.sin() @ x.exp()).sum()
    y.backward(retain_graph=True)
    first, x.grad = x.grad, None
    y.backward()
    return first, x.grad


def backward_twice(hooks):
    x = random_leaf(64)
    with hooks():
        y = (x * 1).sin().sum()
    y.backward()
    y.backward()


def gradient_penalty(hooks):
    x = random_leaf(64)
    with hooks():
        y = (x.sin() * x.exp()).sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        gradient.pow(2).sum().backward()
    return x.grad


def checkpointed(hooks, use_reentrant):
    blocks = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(4)]
    x = random_leaf(32, 64)
    with hooks():
        y = x
        for block in blocks:
            y = checkpoint.checkpoint(block, y, use_reentrant=use_reentrant)
    y.sum().backward()
    return x.grad


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        context.kept_by_hand = x * 2
        return x * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * 2 * x + 0 * context.kept_by_hand


def custom_function(hooks):
    x = random_leaf(4096)
    with hooks():
        y = Square.apply(x * 1).sum()
    y.backward()
    return x.grad


def views(hooks):
    x = random_leaf(64, 64)
    with hooks():
        a = x * 1
        b = a.t()[1:, ::2]
        y = (b * b.exp()).sum() + a[3:7].pow(3).sum() + a.expand(3, 64, 64).sin().sum()
    y.backward()
    return x.grad


def first_in_first_out(hooks):
    linear = torch.nn.Linear(64, 64)
    with hooks():
        losses = [torch.tanh(linear(torch.randn(16, 64))).sum() for _ in range(4)]
    for loss in losses:
        loss.backward()
    return linear.weight.grad


def forward_in_a_thread(hooks):
    linear, x, made = torch.nn.Linear(64, 64), torch.randn(16, 64), []
    with hooks():
        thread = threading.Thread(target=lambda: made.append(linear(x).tanh().sum()))
        thread.start()
        thread.join()
    made[0].backward()
    return linear.weight.grad


def hooks_of_the_program(hooks):
    x, seen = random_leaf(4096), []

    def pack(tensor):
        seen.append(tensor.shape)
        return tensor.detach()

    with hooks(), torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        y = (x * 1).sin().sum()
    y.backward()
    return x.grad, len(seen)


def no_reference_cycle(hooks):
    x = random_leaf(4096)
    with hooks():
        y = (x * 1).relu()
        z = y.sum()
    alive = weakref.ref(y)
    gc.disable()
    try:
        del y, z
        return alive() is None
    finally:
        gc.enable()


def saved_attribute(hooks):
    x = random_leaf(64)
    with hooks():
        y = (x * 1).sin()
    return torch.equal(y.grad_fn._saved_self, x)


def function_gradient(hooks):
    x = torch.randn(64)
    with hooks():
        return torch.func.grad(lambda t: (t.sin() * t.exp()).sum())(x)


def function_gradient_of_a_batch(hooks):
    x = torch.randn(8, 64)
    with hooks():
        return torch.func.vmap(torch.func.grad(lambda t: (t.sin() * t.exp()).sum()))(x)


def jacobian(hooks):
    x = torch.randn(8)
    with hooks():
        return torch.func.jacrev(lambda t: t.sin() * t.exp())(x)


def anomaly_mode(hooks):
    x = random_leaf(64)
    with torch.autograd.detect_anomaly(check_nan=True), hooks():
        x.sin().exp().sum().backward()
    return x.grad


def anomaly_mode_and_change(hooks):
    x = random_leaf(64)
    with torch.autograd.detect_anomaly(check_nan=True), hooks():
        a = x * 2
        y = a.pow(2)
        a.add_(1)
        y.sum().backward()
    return x.grad


def lstm(hooks):
    network = torch.nn.LSTM(32, 32, 2)
    x = random_leaf(10, 4, 32)
    with hooks():
        loss = network(x * 1)[0].sum()
    loss.backward()
    return [x.grad, *(parameter.grad for parameter in network.parameters())]


def sparse_embedding(hooks):
    embedding = torch.nn.Embedding(100, 16, sparse=True)
    indices = torch.randint(100, (32,))
    with hooks():
        loss = embedding(indices).pow(2).sum()
    loss.backward()
    return embedding.weight.grad.to_dense()


def complex_numbers(hooks):
    x = torch.randn(64, dtype=torch.complex64, requires_grad=True)
    with hooks():
        y = (x.conj() * x.exp()).abs().sum() + torch.view_as_real(x * 2).pow(2).sum() + (x * 2).imag.exp().sum()
    y.backward()
    return x.grad


def output_after_backward(hooks):
    linear, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    with hooks():
        y = linear(x).sin().tanh()
    y.sum().backward()
    return y, linear.weight.grad


def abandoned(hooks):
    x = random_leaf(4096)
    with hooks():
        for _ in range(5):
            kept, left = (x * 2).sin().sum(), (x * 3).cos().sum()
    kept.backward()
    del left
    return x.grad


def exception_in_forward(hooks):
    x = random_leaf(4096)
    try:
        with hooks():
            kept, left = (x * 2).sin().sum(), (x * 3).cos().sum()
            raise KeyError("of the program")
    except KeyError as error:
        caught = str(error)
    del left
    kept.backward()
    return caught, x.grad


def inference_tensor(hooks):
    x = random_leaf(64)
    with torch.inference_mode():
        w = torch.ones(64)
    with hooks():
        return (x * w).sum()


class ChangesWhatItSaved(torch.autograd.Function):
    """The backward pass uses the saved tensor as scratch memory."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        x.mul_(2)
        return gradient * x


def changed_by_its_reader(hooks):
    x = random_leaf(64)
    with hooks():
        y = ChangesWhatItSaved.apply(x * 1).sum()
    y.backward()
    return x.grad


def changed_by_its_reader_and_read_again(hooks):
    x = random_leaf(64)
    with hooks():
        y = ChangesWhatItSaved.apply(x * 1).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


def changed_by_another_reader(hooks, held):
    x = random_leaf(64)
    with hooks():
        a = x * 1
        loss = (a.sin() + ChangesWhatItSaved.apply(a) * 2).sum()
        if not held:
            del a
    loss.backward()
    return x.grad


def changed_before_double_backward(hooks):
    x = random_leaf(64)
    with hooks():
        a = x * 1
        (gradient,) = torch.autograd.grad(a.pow(3).sum(), x, create_graph=True)
        with torch.no_grad():
            a.add_(1)
        gradient.sum().backward()
    return x.grad


def changed_when_nobody_holds_it(hooks):
    x = random_leaf(64)
    with hooks():
        a = x * 1
        y, alias = a.sin(), a.detach()
        del a
    alias.mul_(2)
    y.sum().backward()
    return x.grad


class Scaled(torch.autograd.Function):
    """The backward pass reads an attribute of a saved tensor."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(context, gradient):
        _, weight = context.saved_tensors
        return gradient * weight * weight.factor, None


def attribute_of_a_frozen_tensor(hooks):
    x, weight = random_leaf(64), torch.ones(64)
    weight.factor = 3
    with hooks():
        y = Scaled.apply(x, weight)
    y.sum().backward()
    return x.grad


def data_of_a_parameter_replaced(hooks):
    x, weight = random_leaf(64), torch.nn.Parameter(torch.ones(64))
    with hooks():
        y = x * weight
    weight.data = torch.full((64,), 5.0)
    y.sum().backward()
    return x.grad


def forward_mode(hooks):
    """In forward mode, PyTorch gives a tensor that has no tangent a tangent of zeros, whose storage has no bytes."""
    x, w = random_leaf(8, 8), random_leaf(8, 8)
    with hooks(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.randn(8, 8))
        y = torch.autograd.forward_ad.unpack_dual((dual / w).sin() * w).tangent
        for _ in range(6):
            y = y.sin()
        y.sum().backward()
    return x.grad, w.grad


def nested_tensor(hooks):
    a, b, linear = random_leaf(3, 8), random_leaf(5, 8), torch.nn.Linear(8, 8)
    with hooks():
        y = linear(torch.nested.as_nested_tensor([a, b], layout=torch.strided)).relu()
        loss = (y * y).to_padded_tensor(0).sum()
    loss.backward()
    return a.grad, b.grad, linear.weight.grad


def sparse_product(hooks):
    sparse = (torch.randn(16, 16) * (torch.rand(16, 16) > 0.9)).to_sparse().requires_grad_()
    x = random_leaf(16, 16)
    with hooks():
        y = torch.sparse.mm(sparse, x).pow(2).sum()
    y.backward()
    return sparse.grad.to_dense(), x.grad


def numpy_memory(hooks):
    import numpy

    x = random_leaf(64)
    with hooks():
        y = (x * torch.from_numpy(numpy.arange(64, dtype=numpy.float32))).sin().sum()
    y.backward()
    return x.grad


ROWS = {
    "a saved input is changed in place": changed_in_place,
    "a saved output is changed in place": changed_output,
    "the base of a saved view is changed in place": changed_view,
    "a saved input is changed by .data": lambda hooks: changed_by_data(hooks, held=False),
    "a saved input is changed by .data and held": lambda hooks: changed_by_data(hooks, held=True),
    "an alias by .data is saved": lambda hooks: alias_with_its_own_counter(hooks, "nothing"),
    "an alias by .data is saved and changed": lambda hooks: alias_with_its_own_counter(hooks, "alias"),
    "an alias by .data is saved, then the tensor is changed": lambda hooks: alias_with_its_own_counter(hooks, "tensor"),
    "an alias by .data of a changed tensor is saved":
        lambda hooks: alias_with_its_own_counter(hooks, "tensor, before the alias is saved"),
    "an alias by .detach() is saved and changed": lambda hooks: alias_with_its_own_counter(hooks, "detached"),
    "a small saved tensor is changed in place": changed_small_tensor,
    "ReLU in place": relu_in_place,
    "retain_graph": retained_graph,
    "backward twice": backward_twice,
    "gradient penalty": gradient_penalty,
    "checkpoint": lambda hooks: checkpointed(hooks, use_reentrant=False),
    "checkpoint, reentrant": lambda hooks: checkpointed(hooks, use_reentrant=True),
    "custom autograd.Function": custom_function,
    "views": views,
    "several forward passes": first_in_first_out,
    "forward in another thread": forward_in_a_thread,
    "hooks of the program": hooks_of_the_program,
    "no cycle of references": no_reference_cycle,
    "grad_fn._saved_self": saved_attribute,
    "torch.func.grad": function_gradient,
    "torch.func.vmap of grad": function_gradient_of_a_batch,
    "torch.func.jacrev": jacobian,
    "detect_anomaly": anomaly_mode,
    "detect_anomaly and a change in place": anomaly_mode_and_change,
    "sparse embedding": sparse_embedding,
    "LSTM": lstm,
    "complex numbers": complex_numbers,
    "output used after backward": output_after_backward,
    "branches without backward": abandoned,
    "exception in forward": exception_in_forward,
    "inference tensor": inference_tensor,
    "a reader changes a saved tensor in place": changed_by_its_reader,
    "a reader changes a saved tensor in place, and reads it again": changed_by_its_reader_and_read_again,
    "another reader changes a saved tensor in place": lambda hooks: changed_by_another_reader(hooks, held=False),
    "another reader changes a saved tensor in place that is held": lambda hooks: changed_by_another_reader(hooks, held=True),
    "a tensor of double backward is changed in place": changed_before_double_backward,
    "a saved input is changed when nobody else holds it": changed_when_nobody_holds_it,
    "attribute of a frozen tensor": attribute_of_a_frozen_tensor,
    "data of a parameter is replaced": data_of_a_parameter_replaced,
    "forward-mode differentiation": forward_mode,
    "nested tensor": nested_tensor,
    "product with a sparse matrix": sparse_product,
    "memory of NumPy": numpy_memory,
}

# Rows in which no tensor leaves.
NOTHING_LEAVES = frozenset((
    # Autograd saves only parameters, and tensors without a history that the program holds.
    "a small saved tensor is changed in place",
    "attribute of a frozen tensor",
    "data of a parameter is replaced",
    # Other hooks, or none, serve what is saved.
    "hooks of the program",
    "torch.func.grad",
    "torch.func.vmap of grad",
    "torch.func.jacrev",
    # PyTorch refuses to save the tensor.
    "inference tensor",
    # Nested tensors stay.
    "nested tensor",
))  # fmt: skip

# Rows in which tensors leave, and none comes back.
NOTHING_COMES_BACK = frozenset((
    # PyTorch's error precedes the read.
    "a saved input is changed in place",
    "a saved output is changed in place",
    "detect_anomaly and a change in place",
    "a saved input is changed when nobody else holds it",
    # The program holds the tensor, so its reader gets the source.
    "another reader changes a saved tensor in place that is held",
    "a tensor of double backward is changed in place",
    # There is no backward pass.
    "no cycle of references",
))  # fmt: skip

# Rows in which nothing leaves with tier "python", because it does not serve other threads.
NOTHING_LEAVES_IN_PYTHON = frozenset(("forward in another thread",))

# Rows in which tier "python" differs from PyTorch, with its error.
PYTHON_DIFFERS = {
    "torch.func.grad": "don't yet support saved tensor hooks",
    "torch.func.vmap of grad": "don't yet support saved tensor hooks",
    "torch.func.jacrev": "don't yet support saved tensor hooks",
}

# Rows in which PyTorch 2.4 itself makes a new tensor of whatever hooks return.
OLD_PYTORCH_DIFFERS = {"attribute of a frozen tensor": "'Tensor' object has no attribute 'factor'"}
IS_OLD = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 5)

# Rows with a change that PyTorch does not count. PyTorch alone reads the changed value, but the host has the saved one. So with
# hooks the result is that of the row here without hooks.
UNCOUNTED_CHANGES = {"a saved input is changed by .data": lambda hooks: changed_by_data(hooks, held=False, changed=False)}


def differs(name, tier):
    """Returns the expected error if a row raises one that PyTorch without hooks does not raise."""
    return (PYTHON_DIFFERS.get(name) if tier == "python" else None) or (OLD_PYTORCH_DIFFERS.get(name) if IS_OLD else None)


def plain(value):
    """Returns a comparable form of the value; tensors compare by their bits."""
    if isinstance(value, torch.Tensor):
        value = torch.view_as_real(value) if value.is_complex() else value
        return value.detach().numpy().tobytes()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


def outcome(row, hooks):
    torch.manual_seed(0)
    try:
        return plain(row(hooks))
    except Exception as error:  # an expected outcome of a row
        return f"{type(error).__name__}: {error}"
    finally:
        gc.collect()


def without_names(text):
    """Removes text that tier "python" cannot know: the operation that PyTorch names, and the hint on anomaly mode."""
    text = re.sub(r", which is output \d+ of \w+,", "", str(text))
    return text.split(" Hint:")[0]


class Semantics(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        gc.freeze()  # rows collect garbage often, which then takes less time

    def tearDown(self):
        gc.unfreeze()

    def check_row(self, name, tier, comparable):
        row, moves = ROWS[name], OwnHooks(tier=tier, **EVERYTHING_LEAVES)
        expected = outcome(UNCOUNTED_CHANGES.get(name, row), contextlib.nullcontext)
        for run in range(RUNS):
            found = outcome(row, moves.serving)
            if words := differs(name, tier):
                self.assertIn(words, found)
            else:
                self.assertEqual(comparable(found), comparable(expected), f"run {run}")
            gc.collect()
            self.assertEqual(moves.figure("live_handles"), 0, f"run {run}")
            if run == 0:
                self.check_moves(name, tier, moves)

    def check_moves(self, name, tier, moves):
        """Without tensors that leave and come back, most rows would test nothing."""
        nothing_leaves = name in NOTHING_LEAVES or (tier == "python" and name in NOTHING_LEAVES_IN_PYTHON)
        self.assertEqual(moves.figure("out_bytes") == 0, nothing_leaves, f"{moves.figure('out_bytes')} bytes have left")
        nothing_comes_back = nothing_leaves or name in NOTHING_COMES_BACK
        self.assertEqual(moves.figure("in_bytes") == 0, nothing_comes_back, f"{moves.figure('in_bytes')} bytes came back")

    def test_native_equals_no_hooks(self):
        for name in ROWS:
            with self.subTest(name):
                self.check_row(name, "native", comparable=lambda found: found)

    def test_python_equals_no_hooks_but_where_named(self):
        for name in ROWS:
            with self.subTest(name):
                self.check_row(name, "python", comparable=without_names)

    def test_uncounted_changes_change_gradients(self):
        for name, row in UNCOUNTED_CHANGES.items():
            with self.subTest(name):
                self.assertNotEqual(outcome(ROWS[name], contextlib.nullcontext), outcome(row, contextlib.nullcontext))

    def test_child_of_fork(self):
        """Like a DataLoader's worker that uses autograd, a child computes as without hooks and may enable vdnn.torch itself."""

        def gradients(queue, tier):
            x = torch.ones(64, requires_grad=True)
            found = []
            for hooks in (contextlib.nullcontext, lambda: vdnn.torch.offload(tier=tier, **EVERYTHING_LEAVES)):
                with hooks():
                    found.append(torch.autograd.grad((x * 1).sin().sum(), x)[0].tolist())
            queue.put((found, sum(figures["in_bytes"] for figures in vdnn.torch.report(quiet=True).devices.values())))

        expected = torch.ones(64).cos().tolist()
        for tier in ("native", "python"):
            with self.subTest(tier):
                vdnn.torch.enable(tier=tier, **EVERYTHING_LEAVES)
                try:
                    x = random_leaf(64)
                    y = (x * 1).sin().sum()
                    context = torch.multiprocessing.get_context("fork")
                    queue = context.SimpleQueue()
                    child = context.Process(target=gradients, args=(queue, tier))
                    child.start()
                    child.join(timeout=120)
                    self.assertEqual(child.exitcode, 0)
                    found, in_bytes = queue.get()
                    self.assertEqual(found, [expected, expected])
                    self.assertEqual(in_bytes, 64 * 4)
                    y.backward()
                    self.assertEqual(x.grad.tolist(), x.cos().tolist())
                finally:
                    vdnn.torch.disable()

    def test_python_is_disabled_by_its_thread(self):
        vdnn.torch.enable(budget=0, min_size=1, tier="python")
        errors = []

        def disable():
            try:
                vdnn.torch.disable()
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=disable)
        thread.start()
        thread.join()
        vdnn.torch.disable()
        self.assertEqual(len(errors), 1)
        self.assertIn("serves the thread that has enabled it", errors[0])
        vdnn.torch.enable(budget=0, min_size=1, tier="python")
        vdnn.torch.disable()

    def test_another_version_holds_the_storage(self):
        """While a graph keeps one version of a storage, the plan lets no other version leave: its copy would free nothing."""
        for tier in ("native", "python"):
            out_bytes = []
            for keeps_version in (False, True):
                hooks = OwnHooks(tier=tier, budget="1MiB")
                x = random_leaf(1 << 19)
                with hooks.serving():
                    a = x * 1
                    never_read = a.sin() if keeps_version else None
                    a.mul_(0.5)
                    y = a.sin()
                    del a
                    for _ in range(2):
                        y = y.exp().sin()
                out_bytes.append(hooks.figure("out_bytes"))
                del never_read
            self.assertEqual(out_bytes, [2 * x.nbytes, x.nbytes], tier)

    def test_threads(self):
        """Tier "native" serves other threads, too; tier "python" serves only the calling thread."""
        for tier, serves in (("native", True), ("python", False)):
            moves = OwnHooks(tier=tier, **EVERYTHING_LEAVES)
            outcome(forward_in_a_thread, moves.serving)
            self.assertEqual(moves.figure("puts") > 0, serves, tier)


if __name__ == "__main__":
    unittest.main()
