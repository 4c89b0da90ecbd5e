#!/usr/bin/env python3
"""Fail when a header does not stand alone, so that who includes it has to include another one first.

  tools/check_headers.py BUILD    BUILD is a build folder that CMake has configured

The compiler reads by itself each header that a module lists under HEADERS, by the commands that CMake has for that
(VERIFY_INTERFACE_HEADER_SETS), but with cmake/precompiled.h before it: the standard library's headers take longer
than all the rest. What the compiler cannot miss then is looked for in the text: a header of weft/ includes the
standard header of each name that it takes from std, and one of fmt's where it uses fmt. JOBS is how many compilers
run at once (the number of cores)."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The names of std that headers use, by the standard headers of which one has to be included.
NAMES = {
    "algorithm": "all_of any_of clamp copy fill fill_n find_if lower_bound max min nth_element partition_point sort "
                 "upper_bound",
    "array": "array",
    "atomic": "atomic atomic_flag memory_order memory_order_acquire memory_order_relaxed",
    "bit": "bit_cast bit_ceil bit_width countr_zero endian popcount",
    "chrono": "chrono",
    "cmath": "ceil exp expm1 fma isfinite llround sqrt",
    "cmath cstdlib": "abs",
    "compare": "strong_ordering",
    "concepts": "convertible_to integral same_as",
    "condition_variable": "condition_variable",
    "cstddef": "byte nullptr_t ptrdiff_t",
    "cstddef cstdint cstdio cstdlib cstring": "size_t",
    "cstdint": "int16_t int32_t int64_t int8_t uint16_t uint32_t uint64_t uint8_t uintptr_t",
    "cstdlib": "free",
    "cstring": "memcpy memset strlen",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream",
    "functional": "function hash less ref reference_wrapper",
    "future": "future promise",
    "initializer_list": "initializer_list",
    "iosfwd fstream iostream istream sstream": "istream",
    "iosfwd fstream iostream ostream sstream": "ostream",
    "iterator array map set span string vector": "input_iterator_tag random_access_iterator_tag ssize",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex scoped_lock unique_lock",
    "new": "align_val_t",
    "numeric": "accumulate iota partial_sum",
    "optional": "nullopt optional",
    "queue": "priority_queue queue",
    "set": "multiset set",
    "shared_mutex": "shared_mutex",
    "source_location": "source_location",
    "span": "as_bytes as_writable_bytes span",
    "sstream": "istringstream ostringstream",
    "stdexcept": "invalid_argument logic_error runtime_error",
    "string": "string",
    "string_view": "string_view",
    "system_error": "error_code generic_category system_error",
    "thread": "jthread thread",
    "tuple": "apply tuple",
    "type_traits": "conditional_t decay_t enable_if_t invoke_result_t is_arithmetic_v is_const_v is_convertible_v "
                   "is_enum_v is_same_v is_trivially_copyable_v remove_const_t remove_cvref_t remove_reference_t",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "cmp_less exchange forward move pair swap",
    "variant": "monostate variant",
    "vector": "vector",
}
HEADERS_OF = {name: headers.split() for headers, names in NAMES.items() for name in names.split()}
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")


def missing_includes(text):
    """What the text of a header uses of std and fmt without including it."""
    text = COMMENT.sub("", text)
    included = set(INCLUDE.findall(text))
    for name in sorted(set(re.findall(r"\bstd::(\w+)", text))):
        headers = HEADERS_OF.get(name)
        if headers is None:
            yield f"uses std::{name}, which the table of tools/check_headers.py does not have; add it there"
        elif not included.intersection(headers):
            yield f"uses std::{name} and does not include <{headers[0]}>"
    if re.search(r"\bfmt::", text) and not any(header.startswith("fmt/") for header in included):
        yield "uses fmt and includes none of its headers"


def precompile(entry, folder):
    """Has the compiler read cmake/precompiled.h with the flags of an entry; returns what to include."""
    header = pathlib.Path(folder, "precompiled.h")
    header.write_text((ROOT / "cmake/precompiled.h").read_text().replace("#pragma once\n", ""))
    flags = entry["command"].split(" -x c++ ")[1].split(" -o ")[0]
    compiler = entry["command"].split(" -x c++ ")[0]
    subprocess.run(f"{compiler} -x c++-header {flags} -c {header} -o {header}.gch", shell=True, check=True,
                   cwd=entry["directory"])
    return header


def read_alone(entry, precompiled):
    """What the compiler says of a header."""
    command = entry["command"].replace(" -x c++ ", f" -x c++ -include {precompiled} -Winvalid-pch -Werror ", 1)
    return subprocess.run(f"{command} -fsyntax-only", shell=True, cwd=entry["directory"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    commands = build / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"check_headers: there is no {commands}; configure {build} with CMake first")
    faults = []
    for path in sorted((ROOT / "weft").rglob("*.h")):
        faults += [f"{path.relative_to(ROOT)}: {fault}" for fault in missing_includes(path.read_text())]
    entries = [entry for entry in json.loads(commands.read_text())
               if "_verify_interface_header_sets/" in entry["file"]]
    if not entries:
        sys.exit(f"check_headers: {build} has no commands that compile headers alone")
    with tempfile.TemporaryDirectory() as folder:
        precompiled = precompile(entries[0], folder)
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
            for entry, result in zip(entries, pool.map(lambda entry: read_alone(entry, precompiled), entries)):
                if result.returncode:
                    faults.append(f"{entry['file']} does not compile by itself:\n{result.stdout}")
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(f"check_headers: {len(faults)} faults")
    print(f"check_headers: {len(entries)} headers stand alone")


if __name__ == "__main__":
    main()
