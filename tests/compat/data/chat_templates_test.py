"""The texts of chats against transformers' apply_chat_template, byte by byte: templates in the style of seventeen families, 50 chats each, with
tools, systems, results of tools, empty and missing turns, texts of several scripts. A chat that transformers refuses is refused. The parts
that are trained on are those of transformers' generation blocks, or those that rendering prefixes by jinja2 gives.

chat_templates_test.py"""
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402: after the path

torch_python.require(load=False)
from transformers.utils import chat_template_utils  # noqa: E402

BUILD = pathlib.Path(torch_python.build())
TEMPLATES = sorted((pathlib.Path(__file__).resolve().parent / "chat_templates").glob("*.jinja"))
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


chat_template_utils.datetime = Fixed
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a \"place\" <now> & 'later'", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "description": "a city: Zürich, 東京"}, "days": {"type": "integer"},
                                     "tags": {"type": "array", "items": {"type": "string"}}, "either": {"type": ["string", "number"]}},
    "required": ["place"]}}},
    {"type": "function", "function": {"name": "add", "description": "Adds\nnumbers", "parameters": {"type": "object", "properties": {}}}}]
TEXTS = ("Hello", "  two blanks around  ", "", "line\nline\n\n", "\n\nstarts with ends of lines", "tab\there", "Съешь ещё булок", "人之初，性本善",
         "\U0001F600 emoji \U0001F468\u200D\U0001F469", "quotes \"a\" 'b' \\n", "<think>\nlong thought\n</think>\n\nand so on", "a\u00a0b \u2028 c\u3000",
         "{{ braces }} {% x %} <|im_end|>", "0", "false", "İstanbul straße", "x" * 300)


def call(number=2):
    return {"role": "assistant", "content": None if number % 2 else "I look.", "tool_calls": [
        {"id": f"call{number:05d}"[:9], "type": "function", "function": {"name": "weather", "arguments": {
            "place": TEXTS[number % len(TEXTS)], "days": number, "exact": number / 3, "big": 1e22, "list": [1, None, True, {"a": []}], "none": {}}}}]}


def chats():
    """Fifty records, with the keyword arguments that the record stands for."""
    for number in range(50):
        turns = []
        if number % 3 == 0:
            turns.append({"role": "system", "content": TEXTS[number % len(TEXTS)] + (" /no_think" if number % 2 else "")})
        for turn in range(number % 4 + (number % 5 != 0)):
            turns.append({"role": "user", "content": TEXTS[(number + 3 * turn) % len(TEXTS)]})
            if number % 7 == 3 and turn == 1:
                turns += [call(number), {"role": "tool", "name": "weather", "tool_call_id": f"call{number:05d}"[:9], "content": TEXTS[number % len(TEXTS)]}]
                if number % 2:
                    turns.append({"role": "tool", "name": "weather", "tool_call_id": f"call{number:05d}"[:9], "content": "{\"t\": 3}"})
            turns.append({"role": "assistant", "content": TEXTS[(7 * number + turn) % len(TEXTS)]})
        if number % 6 == 4 and turns:
            turns.pop()  # the last turn is the user's
        if number % 11 == 5:
            turns.insert(1, {"role": "assistant", "content": "out of turn"})
        if number % 13 == 6 and turns:
            turns[-1] = {**turns[-1], "reasoning_content": "\nbecause\n"}
        if number == 47 and turns:
            turns[0] = {"role": turns[0]["role"], "content": [{"type": "text", "text": " in parts "}]}
        record = {"messages": turns or [{"role": "user", "content": "alone"}]}
        if number % 4 == 1:
            record["tools"] = json.dumps(TOOLS) if number % 8 == 1 else TOOLS
        if number % 9 == 2:
            record["chat_template_kwargs"] = {"enable_thinking": False, "tools_in_user_message": False, "controls": {"a": 1}}
        yield record


def theirs(template, turns, record, asks=False):
    tools = record.get("tools")
    tools = json.loads(tools) if isinstance(tools, str) else tools
    texts, spans = chat_template_utils.render_jinja_template([turns], chat_template=template, tools=tools, documents=None, return_assistant_tokens_mask=True,
                                                             add_generation_prompt=asks, **{**SPECIAL, **record.get("chat_template_kwargs", {})})
    return texts[0], [list(span) for span in spans[0]]


def by_prefixes(template, record, text):
    """None: the prefixes of this chat are no prefixes of the text."""
    spans = []
    for at, turn in enumerate(record["messages"]):
        if turn["role"] != "assistant":
            continue
        try:
            before, after = theirs(template, record["messages"][:at], record, True)[0], theirs(template, record["messages"][:at + 1], record)[0]
        except Exception:
            return None
        if not text.startswith(before) or not text.startswith(after) or len(after) < len(before):
            return None
        if len(after) > len(before):
            spans.append([len(before), len(after)])
    return spans


def check(path, records):
    template = path.read_text()
    marks = "generation %" in template
    lines = subprocess.run([BUILD / "tests/chat_dump", path, json.dumps(SPECIAL)], input="".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records),
                           capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    assert len(lines) == len(records), (path, len(lines))
    equal = refused = masks = found = 0
    for record, line in zip(records, lines):
        ours = json.loads(line)
        try:
            text, spans = theirs(template, record["messages"], record)
        except Exception as error:
            assert "error" in ours, f"{path.name}: transformers refuses ({error!r}), and we write {ours}\n{record}"
            refused += 1
            continue
        if "error" in ours:
            raise AssertionError(f"{path.name}: {ours['error']}\n{record}\n{text}")
        assert ours["text"] == text, f"{path.name}:\n{ours['text']!r}\nis not\n{text!r}\n{record}"
        equal += 1
        raw = text.encode()
        mine = [[len(raw[:a].decode()), len(raw[:b].decode())] for a, b in ours["spans"]]
        if not marks:
            spans = by_prefixes(template, record, text)
        else:
            spans = [span for span in spans if span[1] > span[0]]
        if spans is not None:
            assert mine == spans, f"{path.name}: {mine} is not {spans}\n{text!r}"
            masks += 1
        else:  # each turn of the assistant is there, to its end
            for (a, b), turn in zip(mine, [t for t in record["messages"] if t["role"] == "assistant"]):
                assert "tool_calls" in turn or (turn["content"] or "").split("</think>")[-1].strip() in text[a:b], (path.name, text[a:b], turn)
            found += 1
    print(f"{path.name}: {equal} texts are equal, {refused} are refused by both; {masks} masks are equal, {found} are found by the contents")
    return equal


def check_expressions():
    """One template a line: filters, tests, methods, operators, statements; equal to jinja2's text, or refused by both."""
    templates = (pathlib.Path(__file__).resolve().parent / "chat_templates/expressions.txt").read_text().splitlines()
    turns = [{"role": "system", "content": "Sys tem"}, {"role": "user", "content": " Hi there "}, {"role": "tool", "content": "Yes"}]
    refused = 0
    with tempfile.TemporaryDirectory(prefix="muster chats ") as folder:
        path = pathlib.Path(folder) / "one.jinja"
        for template in templates:
            path.write_text(template)
            ours = json.loads(subprocess.run([BUILD / "tests/chat_dump", path, json.dumps(SPECIAL)], input=json.dumps({"messages": turns}) + "\n",
                                             capture_output=True, text=True, check=True).stdout)
            try:
                wanted = theirs(template, turns, {})[0]
            except Exception:
                assert "error" in ours, (template, ours)
                refused += 1
                continue
            assert ours.get("text") == wanted, (template, wanted, ours)
    print(f"{len(templates)} templates of expressions: equal to jinja2's, {refused} refused by both")


def main():
    check_expressions()
    records = list(chats())
    assert len(TEMPLATES) >= 12, TEMPLATES
    total = sum(check(path, records) for path in TEMPLATES)
    assert total > 25 * len(TEMPLATES), total


main()
