"""DeepSpeed's configuration here and in DeepSpeed's own source archive: the batch triangle by its own methods, the stages, the keys of
its classes, its schedulers' parameters and their defaults. The classes are taken out of the files' syntax trees: their imports want
packages and devices. Skipped where the archive could not be fetched (in CI that fails)."""

import ast
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import deepspeed_source
import torch_python

torch_python.require(load=False) # its interpreter: the archive lies next to it

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
DUMP, TRAIN = BUILD / "tests" / "formats_dump", BUILD / "bin" / "muster-train"


def sources(*members):
    """The syntax trees of files of the archive."""
    with tarfile.open(deepspeed_source.archive()) as tar:
        names = {member.name.split("/", 1)[-1]: member for member in tar.getmembers()}
        return [ast.parse(tar.extractfile(names["deepspeed/" + member]).read()) for member in members]


def find_class(tree, name):
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


# ---- the batch triangle ----

def own_batches(tree):
    """DeepSpeed's methods as functions of an object with the three sizes and world_size."""
    wanted = ("_set_batch_related_parameters", "_batch_assertion", "_configure_train_batch_size")
    methods = [node for node in find_class(tree, "DeepSpeedConfig").body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    assert len(methods) == len(wanted), [method.name for method in methods]
    space = {}
    exec(compile(ast.Module(body=methods, type_ignores=[]), "deepspeed/runtime/config.py", "exec"), space)

    def complete(total, micro, accumulation, ranks):
        sizes = types.SimpleNamespace(train_batch_size=total, train_micro_batch_size_per_gpu=micro,
                                      gradient_accumulation_steps=accumulation, world_size=ranks)
        for name in wanted:
            setattr(sizes, name, types.MethodType(space[name], sizes))
        try:
            sizes._configure_train_batch_size()
        except AssertionError:
            return "refused"
        return f"{sizes.train_batch_size} {sizes.train_micro_batch_size_per_gpu} {sizes.gradient_accumulation_steps}"
    return complete


def check_batches(tree):
    complete = own_batches(tree)
    totals = (None, *range(1, 33), 48, 64, 96, 100, 1024)
    cases = list(itertools.product(totals, (None, 1, 2, 3, 4, 8, 16), (None, 1, 2, 3, 4, 64), (1, 2, 3, 4, 8, 64)))
    lines = "".join(f"{' '.join(str(size or 0) for size in case)} {strict}\n" for strict in (1, 0) for case in cases)
    answers = subprocess.run([DUMP, "batches"], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(answers) == 2 * len(cases), len(answers)
    accepted = 0
    for case, strict, relaxed in zip(cases, answers, answers[len(cases):]):
        theirs = complete(*case)
        assert strict == theirs, f"{case}: strict {strict}, DeepSpeed {theirs}"
        assert theirs in ("refused", relaxed), f"{case}: {relaxed}, DeepSpeed {theirs}"
        accepted += theirs != "refused"
    assert 0 < accepted < len(cases)
    print(f"{len(cases)} batches as DeepSpeed has them, {accepted} of them accepted")


# ---- stages ----

def check_stages(tree):
    """ZeroStageEnum's members and the state sharded here."""
    ours = {"disabled": "NO_SHARD", "optimizer_states": "SHARD_OPTIM", "gradients": "SHARD_GRAD_OP", "weights": "FULL_SHARD"}
    members = {node.targets[0].id: node.value.value for node in find_class(tree, "ZeroStageEnum").body if isinstance(node, ast.Assign)}
    assert members.pop("max_stage") == 3 and set(members) == set(ours), members
    for name, stage in members.items():
        settings = print_config({"train_batch_size": 8, "zero_optimization": {"stage": stage}})
        assert settings["training.strategy"]["value"] == ours[name], (name, settings["training.strategy"])
    print(f"{len(members)} stages")


def print_config(content):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(content, file)
        file.flush()
        command = [TRAIN, file.name, "--print-config", "--output=json", "--set", "data.path=x"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


# ---- keys ----

def fields(tree, name):
    """Members of a pydantic class and their aliases."""
    for node in find_class(tree, name).body:
        if isinstance(node, ast.AnnAssign):
            yield node.target.id
            if isinstance(node.value, ast.Call):
                yield from (word.value.value for word in node.value.keywords if word.arg == "alias")


def texts(tree):
    return {node.targets[0].id: node.value.value for node in ast.walk(tree) if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)}


def top_level(config, constants):
    """What DeepSpeedConfig reads of the whole dictionary."""
    names = {**constants, **texts(config)}
    for node in ast.walk(config):
        if not isinstance(node, ast.Call) or len(node.args) < 1:
            continue
        function = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        of_all = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "param_dict"
        if function == "get_scalar_param" and isinstance(node.args[0], ast.Name) and node.args[0].id == "param_dict":
            key = node.args[1]
        elif function == "get" and of_all:
            key = node.args[0]
        else:
            continue
        text = key.value if isinstance(key, ast.Constant) else names.get(getattr(key, "id", ""))
        if text:
            yield text


def check_keys(config, constants_tree, zero, precision):
    offload, leaf, monitor, comm = sources("runtime/zero/offload_config.py", "runtime/zero/leaf_module_config.py", "monitor/config.py",
                                           "comm/config.py")
    constants = texts(constants_tree)
    output = subprocess.run([DUMP, "keys"], capture_output=True, text=True, check=True).stdout
    known, parameters = (set(part.split()) for part in output.split("\nparameters\n"))
    blocks = [("zero_optimization.", zero, "DeepSpeedZeroConfig"),
              ("zero_optimization.offload_param.", offload, "DeepSpeedZeroOffloadParamConfig"),
              ("zero_optimization.offload_optimizer.", offload, "DeepSpeedZeroOffloadOptimizerConfig"),
              ("zero_optimization.leaf_module.", leaf, "DeepSpeedZeroLeafModuleConfig"),
              ("fp16.", precision, "DeepSpeedFP16Config"), ("bf16.", precision, "DeepSpeedBF16Config"),
              ("tensorboard.", monitor, "TensorBoardConfig"), ("wandb.", monitor, "WandbConfig"), ("comet.", monitor, "CometConfig"),
              ("csv_monitor.", monitor, "CSVConfig"), ("comms_logger.", comm, "CommsLoggerConfig")]
    theirs = [prefix + name for prefix, tree, cls in blocks for name in fields(tree, cls)] + list(top_level(config, constants))
    unknown = sorted(set(theirs) - known)
    assert not unknown, f"keys of DeepSpeed that are not known: {unknown}"
    print(f"{len(set(theirs))} keys of DeepSpeed's classes are known")
    return parameters


def check_schedulers(parameters):
    """Names and defaults of the constructors."""
    defaults = {"warmup_num_steps": "training.warmup_steps", "warmup_type": "training.warmup_type",
                "warmup_min_lr": "training.warmup_min_learning_rate", "cycle_first_step_size": "training.warmup_steps",
                "cycle_min_mom": "training.cycle_min_momentum", "cycle_max_mom": "training.cycle_max_momentum",
                "decay_lr_rate": "training.cycle_decay_rate", "decay_step_size": "training.cycle_decay_interval"}
    (tree,) = sources("runtime/lr_schedules.py")
    constants = texts(tree)
    count = 0
    for name in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle"):
        method = next(node for node in find_class(tree, name).body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        names = [argument.arg for argument in method.args.args[2:]] # self, optimizer
        given = (constants.get(value.id) if isinstance(value, ast.Name) else ast.literal_eval(value) for value in reversed(method.args.defaults))
        values = dict(zip(reversed(names), given))
        required = {"OneCycle": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}}.get(name, {})
        required |= {"total_num_steps": 5000} if "total_num_steps" in names else {}
        settings = print_config({"train_batch_size": 8, "scheduler": {"type": name, "params": required}})
        for key in names:
            assert f"{name}.{key}" in parameters, f"{name}.{key} is not known"
            if key in defaults and key in values:
                ours = settings[defaults[key]]["value"]
                assert ours == values[key], f"{name}.{key}: ours {ours}, DeepSpeed {values[key]}"
                count += 1
    assert count > 8, count
    print(f"{count} defaults of schedulers")


def main():
    config, constants, zero, precision = sources("runtime/config.py", "runtime/constants.py", "runtime/zero/config.py",
                                                 "runtime/precision_config.py")
    check_batches(config)
    check_stages(zero)
    check_schedulers(check_keys(config, constants, zero, precision))


main()
