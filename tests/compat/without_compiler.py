"""PyTorch without its compiler, for workers that start very often: DistributedDataParallel and the optimizers load torch._dynamo and 800
modules with it, only to ask whether something is being compiled. That is half of a worker's processor time until its first step."""

import sys
import types

import torch


def leave_out():
    """Before anything asks for the compiler; what is asked of it is answered as where nothing is compiled."""
    nothing = types.SimpleNamespace(cache_clear=lambda: None)
    compiler = types.ModuleType("torch._dynamo")
    compiler.disable = lambda function=None, recursive=True, **options: function
    compiler.graph_break = lambda *arguments, **options: None
    compiler.utils = types.SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
    compiler.trace_rules = types.SimpleNamespace(
        clear_lru_cache=lambda: None, LEGACY_MOD_INLINELIST=set(), get_legacy_mod_inlinelist=nothing
    )
    sys.modules["torch._dynamo"] = torch._dynamo = compiler
