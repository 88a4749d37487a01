"""Pin every foreign image by its digest, beside its tag: a tag can be moved, a digest cannot.

make pins           # asks Docker Hub, and rewrites the Dockerfile, compose.yaml and the overlays
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[1]
HUB = "https://registry-1.docker.io"
DIGEST = r"sha256:[0-9a-f]{64}"
# Both kinds of list of images for several architectures; the digest of a list holds for all of them.
KINDS = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
REFERENCES = {  # groups: what stands before, name, tag
    "docker/Dockerfile": rf"(^ARG BASE=)([^\s:@]+):([^\s@]+)(?:@{DIGEST})?",
    "docker/compose.yaml": rf"(^    image: )([^\s:@]+):([^\s@]+)(?:@{DIGEST})?",
}
IN_OVERLAYS = rf"(^    newName: )(\S+)\n    newTag: (\S+)(?:\n    digest: {DIGEST})?"
Digest = Callable[[str, str], str]


class NoDigest(Exception):
    """Why an image could not be pinned. A sentence for a person."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--registry", default=HUB, help="default: %(default)s")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository; default: this one")
    arguments = parser.parse_args()
    try:
        with httpx.Client(base_url=arguments.registry, timeout=30, follow_redirects=True) as registry:
            written = pinned(arguments.root, lambda name, tag: digest_of(registry, name, tag))
    except NoDigest as reason:
        print(f"{reason} Images stay pinned by their tags.", file=sys.stderr)
        sys.exit(2)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


def pinned(root: Path, digest: Digest) -> Mapping[Path, str]:
    """The texts of all files that name images, with digests. Raises `NoDigest`; then no file is to be written."""
    texts: dict[Path, str] = {}
    for name, pattern in REFERENCES.items():
        texts[root / name] = _with_digests((root / name).read_text("utf-8"), pattern, "{0}{1}:{2}@{3}", digest)
    for path in sorted((root / "docker/kubernetes/overlays").glob("*/kustomization.yaml")):
        form = "{0}{1}\n    newTag: {2}\n    digest: {3}"
        texts[path] = _with_digests(path.read_text("utf-8"), IN_OVERLAYS, form, digest)
    return texts


def _with_digests(text: str, pattern: str, form: str, digest: Digest) -> str:
    def replaced(found: re.Match[str]) -> str:
        before, name, tag = found.groups()
        if name.startswith("enginebench/"):
            return found[0]  # ours are built, not pulled
        value = digest(name, tag)
        print(f"{name}:{tag} is {value}")
        return form.format(before, name, tag, value)

    return re.sub(pattern, replaced, text, flags=re.MULTILINE)


def digest_of(registry: httpx.Client, name: str, tag: str) -> str:
    """By the distribution specification: the header of the tag's manifest. Raises `NoDigest`."""
    path = name if "/" in name else f"library/{name}"
    address, headers = f"/v2/{path}/manifests/{tag}", {"Accept": KINDS}
    try:
        answer = registry.head(address, headers=headers)
        if answer.status_code == 401:
            headers["Authorization"] = f"Bearer {_token(registry, answer.headers['www-authenticate'])}"
            answer = registry.head(address, headers=headers)
    except (httpx.TransportError, KeyError, ValueError) as error:
        raise NoDigest(f"The registry {registry.base_url} is not reached from here ({type(error).__name__}).") from None
    found = str(answer.headers.get("docker-content-digest", ""))
    if answer.status_code != 200 or not re.fullmatch(DIGEST, found):
        raise NoDigest(f"The registry {registry.base_url} has no {name}:{tag} (HTTP {answer.status_code}).")
    return found


def _token(registry: httpx.Client, challenge: str) -> str:
    """A token for reading, which the registry gives anyone. Raises `KeyError` or `ValueError` for another challenge."""
    asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    answer = registry.get(asked["realm"], params={"service": asked["service"], "scope": asked["scope"]})
    return str(answer.json()["token"])


if __name__ == "__main__":
    main()
