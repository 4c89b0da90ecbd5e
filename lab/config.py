"""The description of a lab: a YAML file of hosts, their ranks, links and processor shares."""

import dataclasses
import difflib
import pathlib
import re

import yaml

MAX_HOSTS = 250  # of one /24 network


class LabError(Exception):
    """What is wrong and what to do, for one line on standard error."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


class ConfigError(LabError):
    def __init__(self, message):
        super().__init__(message, code=2)


@dataclasses.dataclass(frozen=True)
class Key:
    meaning: str
    kind: type
    least: float
    most: float
    default: object


# Of every host; given above `hosts` it is the default of all.
HOST_KEYS = {
    "ranks": Key("ranks of this host", int, 1, 256, 1),
    "rate_mbit": Key("rate of its link in each direction, Mbit/s", float, 0.1, 100_000, None),
    "queue_ms": Key("longest wait in the link's queue before it drops", float, 1, 10_000, 50),
    "mtu": Key("bytes of its largest packet", int, 1280, 9000, 1500),
    "cpus": Key("processors' worth of time for all its processes", float, 0.1, 1024, None),
}
LAB_KEYS = {"version", "hosts", *HOST_KEYS}
HOST_NAME = re.compile(r"[a-z][a-z0-9-]{0,14}")


@dataclasses.dataclass(frozen=True)
class Host:
    name: str
    address: str
    ranks: int
    rate_mbit: float | None
    queue_ms: float
    mtu: int
    cpus: float | None


@dataclasses.dataclass(frozen=True)
class Lab:
    path: str
    hosts: tuple

    @property
    def ranks(self):
        return sum(host.ranks for host in self.hosts)

    def host_of_rank(self, rank):
        for host in self.hosts:
            if rank < host.ranks:
                return host
            rank -= host.ranks
        raise IndexError(rank)


class _Loader(yaml.SafeLoader):
    """Refuses a key given twice, of which YAML libraries keep the last."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise ConfigError(f"line {key.start_mark.line + 1}: '{name}' is given twice; "
                                  "remove one")
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_lab(path):
    try:
        text = pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        return _lab_of(path, yaml.load(text, _Loader))
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deep") from None
    except (yaml.YAMLError, ValueError) as error:  # the latter: no date, too many digits
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _lab_of(path, tree):
    check_keys(tree, LAB_KEYS)
    if tree.get("version") != 1 or type(tree["version"]) is not int:
        raise ConfigError(f"version: is {tree.get('version')!r}; this program reads version 1")
    hosts = tree.get("hosts")
    if not isinstance(hosts, dict) or not 1 <= len(hosts) <= MAX_HOSTS:
        raise ConfigError(f"hosts: needs 1 to {MAX_HOSTS} names of hosts, each with its own keys "
                          "or none: 'node1: {}'")
    defaults = {name: _value(tree, name, name, key.default) for name, key in HOST_KEYS.items()}
    return Lab(str(path), tuple(_host_of(number, name, values, defaults)
                                for number, (name, values) in enumerate(hosts.items(), start=1)))


def _host_of(number, name, values, defaults):
    if not HOST_NAME.fullmatch(str(name)):
        raise ConfigError(f"hosts.{name}: a host's name has at most 15 of a-z, 0-9 and '-', "
                          "a letter first")
    if name == "lo":
        raise ConfigError("hosts.lo: is what every machine calls the way to itself; choose another "
                          "name")
    values = {} if values is None else values
    check_keys(values, HOST_KEYS, f"hosts.{name}: ")
    found = {key: _value(values, key, f"hosts.{name}.{key}", defaults[key]) for key in HOST_KEYS}
    return Host(name=name, address=f"10.214.0.{number}", **found)


def check_keys(values, known, where=""):
    if not isinstance(values, dict):
        raise ConfigError(f"{where}there must be keys and values, of {_listed(known)}")
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise ConfigError(f"{where}unknown key '{key}'; {hint}There are {_listed(known)}")


def _listed(names):
    return ", ".join(sorted(names))


def _value(values, name, where, default):
    if name not in values:
        return default
    key, value = HOST_KEYS[name], values[name]
    if value is None and key.default is None:
        return None  # not limited, whatever the default of the lab
    numbers = (int,) if key.kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, numbers) or \
            not key.least <= value <= key.most:
        raise ConfigError(f"{where}: is {value!r}; it must be {_kind(key)} from {key.least:g} to "
                          f"{key.most:g} ({key.meaning})")
    return value


def _kind(key):
    return "an integer" if key.kind is int else "a number"
