"""Hooks of vdnn.torch for one test."""

import contextlib

import vdnn.torch


@contextlib.contextmanager
def serving(hooks):
    hooks.start()
    try:
        yield
    finally:
        hooks.stop()


class OwnHooks:
    """Hooks with a stash of their own. Options are those of vdnn.torch.enable()."""

    def __init__(self, **options):
        self.hooks = vdnn.torch.make_hooks(vdnn.torch.make_settings(**options))

    def serving(self):
        return serving(self.hooks)

    def figure(self, name):
        return sum(stash.statistics()[name] for stash in self.hooks.stashes().values())
