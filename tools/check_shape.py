#!/usr/bin/env python3
"""Fail when a file, a function or a declaration is out of the shape that CONTRIBUTING.md asks for.

  file          a source or header of weft/, cli/, bench/ or tests/ has at most 500 lines
  function      a function of weft/, cli/ or bench/ has at most 80 lines
  parameters    a function declared in a public header of weft/ has at most five parameters
  bool          ... and no parameter of type bool
  documented    what a public header of weft/ declares has a comment: its own, that of the declarations
                right above it, or, of a type, the header's opening one. Constructors, and members of
                up to three lines that are defined where they are declared, may go without

Headers ending in -inl.h and those whose first line says "Private to" are not public. Exceptions are lines of
tools/shape_exceptions.txt: a rule, a place, and behind a # the reason. An exception that is no longer
needed is a fault too, so the list can only shrink.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXCEPTIONS = ROOT / "tools/shape_exceptions.txt"
FILE_LINES = 500
FUNCTION_LINES = 80
PARAMETERS = 5
NO_FUNCTION = re.compile(r"\b(if|for|while|switch|catch|do|else|try|namespace|class|struct|enum|union|extern)\b")
TYPE = re.compile(r"^(template\b.*)?(enum class|enum|class|struct|union)\s+(\[\[\w+\]\]\s*)?(alignas\([^)]*\)\s*)?"
                  r"(?P<name>\w+)[^;]*$")


def without_text(source):
    """The source with comments, strings and characters blanked, every line where it was."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    return re.sub(pattern, blank, source, flags=re.DOTALL)


def split_parameters(text):
    """What stands between commas outside brackets."""
    depth, begin, found = 0, 0, []
    for i, c in enumerate(text):
        if c in "(<[{":
            depth += 1
        elif c in ")>]}" and not (c == ">" and text[i - 1] == "-"):
            depth -= 1
        elif c == "," and depth == 0:
            found.append(text[begin:i])
            begin = i + 1
    found.append(text[begin:])
    return [" ".join(one.split()) for one in found if one.strip()]


class Block:
    def __init__(self, kind, name, begin):
        self.kind, self.name, self.begin = kind, name, begin  # begin: first line of what opens it


class Scan:
    """Statements and blocks of a file, with their lines; preprocessor lines are left out."""

    def __init__(self, source):
        self.lines = source.splitlines()
        text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]),
                      without_text(source), flags=re.MULTILINE)
        self.functions = []     # (name, lines)
        self.short = set()      # (name, first line) of members defined in up to three lines
        self.types = set()
        self.opening = re.match(r"(//[^\n]*\n)*", source)[0]
        self.declarations = []  # (name, first line, statement) of namespaces and public parts of classes
        self.walk(text)

    def walk(self, text):
        stack, begin, parens = [], 0, 0
        line = 0
        start_line = None  # of the statement
        for i, c in enumerate(text):
            if c == "\n":
                line += 1
            if not c.isspace() and start_line is None:
                start_line, begin = line, i
            if c == "(":
                parens += 1
            elif c == ")":
                parens -= 1
            elif parens > 0 and c in "{};":
                if c == "{":
                    stack.append(Block("inside", "", line))
                elif c == "}" and stack and stack[-1].kind == "inside":
                    stack.pop()
                continue
            elif c == "{":
                statement = text[begin:i].strip()
                block = self.open(statement, start_line if start_line is not None else line, stack)
                stack.append(block)
                if block.kind != "inside":
                    start_line = None
            elif c == "}":
                block = stack.pop() if stack else Block("other", "", line)
                if block.kind == "function":
                    lines = line - block.begin + 1
                    self.functions.append((block.name, lines))
                    if lines <= 3 and stack and stack[-1].kind in ("class", "struct"):
                        self.short.add((block.name, block.begin))
                if block.kind != "inside":
                    start_line = None
            elif c == ";":
                self.end(text[begin:i].strip(), start_line, stack)
                start_line = None
            elif c == ":" and start_line is not None and \
                    text[begin:i].strip() in ("public", "private", "protected"):
                if stack and stack[-1].kind in ("class", "struct"):
                    stack[-1].access = text[begin:i].strip()
                start_line = None

    @staticmethod
    def is_public(stack):
        return all(block.kind == "namespace" and block.name or
                   block.kind in ("class", "struct") and
                   getattr(block, "access", "private" if block.kind == "class" else "public") == "public"
                   for block in stack)

    def open(self, statement, first, stack):
        flat = " ".join(statement.split())
        if stack and stack[-1].kind in ("function", "inside", "other"):
            return Block("other", "", first)
        if flat.startswith("namespace"):
            return Block("namespace", flat.removeprefix("namespace").strip(), first)
        if flat.startswith("extern"):
            return Block("namespace", "extern", first)
        kind = TYPE.match(flat)
        if kind and not flat.endswith(")"):
            self.types.add(kind["name"])
            if self.is_public(stack):
                self.declarations.append((kind["name"], first, ""))
            return Block("other" if "enum" in kind[2] else kind[2].split()[0], kind["name"], first)
        if "(" in flat and not NO_FUNCTION.match(flat):
            name = self.name_of(flat)
            if name:
                if self.is_public(stack):
                    self.declarations.append((name, first, flat))
                return Block("function", name, first)
        return Block("inside", "", first)

    def end(self, statement, first, stack):
        flat = " ".join(statement.split())
        if not flat or not self.is_public(stack) or first is None:
            return
        if flat.startswith(("using ", "friend ", "static_assert", "namespace ", "typedef ")):
            return
        name = self.name_of(flat)
        if name and not TYPE.match(flat):
            self.declarations.append((name, first, flat))

    @staticmethod
    def name_of(flat):
        found = re.search(r"(operator\s*\S+?|[~\w]+)\s*\(", re.sub(r"\[\[\w+\]\]|alignas\(\w+\)|decltype\(auto\)|noexcept\(\w+\)|requires\s*\([^)]*\)", "", flat))
        name = found[1] if found else None
        return None if name in (None, "sizeof", "requires", "WEFT_CHECK", "static_cast") else name

    def is_documented(self, first):
        """A comment above, or declarations without an empty line between them up to one."""
        line = first - 1
        while line >= 0 and self.lines[line].strip() and \
                not self.lines[line].strip().endswith((":", "{")):
            if self.lines[line].lstrip().startswith("//"):
                return True
            line -= 1
        end = first
        while end < len(self.lines) and not re.search(r"[;{}]\s*(//.*)?$", self.lines[end]):
            end += 1
        return end < len(self.lines) and "///<" in self.lines[end]


def parameters(flat, name):
    begin = flat.index("(", flat.index(name)) + 1
    depth = 1
    for i in range(begin, len(flat)):
        depth += {"(": 1, ")": -1}.get(flat[i], 0)
        if depth == 0:
            return split_parameters(flat[begin:i])
    return []


def is_public_header(path, source):
    return (path.suffix == ".h" and path.parts[0] == "weft" and not path.name.endswith("-inl.h") and
            "Private to" not in source.split("\n", 1)[0])


def faults_of(path, source):
    """Pairs of rule and place."""
    scan = Scan(source)
    if len(scan.lines) > FILE_LINES:
        yield "file", str(path), f"{len(scan.lines)} lines"
    if path.parts[0] != "tests":
        for name, lines in scan.functions:
            if lines > FUNCTION_LINES:
                yield "function", f"{path}:{name}", f"{lines} lines"
    if not is_public_header(path, source):
        return
    for name, first, flat in scan.declarations:
        place = f"{path}:{name}"
        says_enough = (name.startswith(("~", "operator")) or (name, first) in scan.short or
                       (flat and name in scan.types) or "override" in flat or
                       not flat and re.search(rf"\b{name}\b", scan.opening) or
                       re.search(r"=\s*(default|delete)$", flat))
        if not says_enough and not scan.is_documented(first):
            yield "documented", place, f"line {first + 1} has no comment"
        if not flat or flat.startswith("friend") or "override" in flat:
            continue
        own = parameters(flat, name)
        if len(own) > PARAMETERS:
            yield "parameters", place, f"{len(own)} parameters"
        if any(re.match(r"(const )?bool\b", one) for one in own):
            yield "bool", place, "a parameter of type bool"


def main():
    exceptions = {}
    for line in EXCEPTIONS.read_text().splitlines() if EXCEPTIONS.exists() else []:
        entry, _, reason = line.partition("#")
        if entry.strip():
            exceptions[tuple(entry.split())] = reason.strip()
    faults = [f"tools/shape_exceptions.txt: {' '.join(key)} gives no reason"
              for key, reason in exceptions.items() if not reason]
    unused = set(exceptions)
    files = 0
    for folder in ("weft", "cli", "bench", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            files += 1
            name = path.relative_to(ROOT)
            for rule, place, what in faults_of(name, path.read_text()):
                if (rule, place) in exceptions:
                    unused.discard((rule, place))
                else:
                    faults.append(f"{rule} {place}: {what}")
    faults += [f"tools/shape_exceptions.txt: {' '.join(key)} is in shape now; remove the line"
               for key in sorted(unused)]
    print("\n".join(dict.fromkeys(faults)) or f"{files} files are in shape")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
