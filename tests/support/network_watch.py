"""Notes every name that a process looks up and every address that it connects to, but for this machine's own.

A library of C is loaded before all others, since a socket of a compiled library does not pass through Python.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note(const char *what, const char *who) {
  FILE *file = fopen(getenv("NETWORK_LOG"), "a");
  if (file) { fprintf(file, "%s %s\\n", what, who); fclose(file); }
}

typedef const struct addrinfo *Hints;

int getaddrinfo(const char *node, const char *service, Hints hints, struct addrinfo **found) {
  int (*real)(const char *, const char *, Hints, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
  if (!node || !strcmp(node, "localhost") || !strncmp(node, "127.", 4) || !strcmp(node, "::1"))
    return real(node, service, hints, found);
  note("looked up", node);
  return EAI_FAIL;
}

int connect(int socket, const struct sockaddr *to, socklen_t size) {
  int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
  if (to->sa_family == AF_INET && ntohl(((struct sockaddr_in *)to)->sin_addr.s_addr) >> 24 != 127)
    note("connected", "IPv4");
  if (to->sa_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)to)->sin6_addr))
    note("connected", "IPv6");
  return real(socket, to, size);
}
"""


def contacts(code: str, folder: Path, **variables: str) -> list[str]:
    """What the program of Python asked of the network, in the order in which it did."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("watches calls of Linux' C library, and needs a C compiler")
    (folder / "watch.c").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "watch.so", folder / "watch.c", "-ldl"], check=True)
    environment = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name}
    environment |= {"LD_PRELOAD": str(folder / "watch.so"), "NETWORK_LOG": str(folder / "log"), "HOME": str(folder)}
    (folder / "log").touch()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return (folder / "log").read_text().splitlines()
