"""Hooks of vdnn.torch for one test."""

import contextlib

import vdnn.torch


class OwnHooks:
    """Hooks with a stash of their own. Options are those of vdnn.torch.enable()."""

    def __init__(self, **options):
        self.hooks = vdnn.torch.make_hooks(vdnn.torch.make_settings(**options))

    @contextlib.contextmanager
    def serving(self):
        self.hooks.start()
        try:
            yield
        finally:
            self.hooks.stop()

    def figure(self, name):
        return sum(stash.statistics()[name] for stash in self.hooks.stashes().values())
