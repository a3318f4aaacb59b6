"""
Container images of the brokers, made on this machine where none can be pulled.

They have the names of the published images, and the broker in the same folder, so that whoever asks for a published
image by name gets one of these.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from typing import IO, TYPE_CHECKING, Final

from jmsx_broker.artefacts import libraries
from jmsx_broker.docker import docker_client, told_errors
from jmsx_broker.java import find_java
from jmsx_broker.products import Product
from jmsx_broker.runtime import java_home, runtime_files

if TYPE_CHECKING:
    from pathlib import Path


#: The label that marks an image as made by this module.
LABEL: Final = "jmsx.made-here"

#: Files that programs in the image expect: the one user, and how host names are looked up.
_TEXTS: Final = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def has_image(product: Product) -> bool:
    """Return whether the Docker daemon has the image of `product`; raises ConfigurationError if none answers."""
    with docker_client() as client, told_errors():
        return bool(client.images.list(name=product.image))


def make_image(product: Product) -> None:
    """
    Make the image of `product` of this machine's Java and the broker's jars, and give it its published name.

    Raises ConfigurationError where there is no Docker daemon or no Java, and the errors of `libraries`.
    """
    java = find_java()
    jars = libraries(product, java)
    repository, _, tag = product.image.partition(":")
    changes = [f"ENV PATH={java_home(java)}/bin", f"LABEL {LABEL}=true"]
    with docker_client() as client, tempfile.TemporaryFile() as file:
        _write_root(file, product, java, jars)
        file.seek(0)
        with told_errors():
            client.api.import_image(src=file, repository=repository, tag=tag, changes=changes)


def _write_root(file: IO[bytes], product: Product, java: Path, jars: Path) -> None:
    """Write the image's root folder as a tar."""
    with tarfile.open(fileobj=file, mode="w", dereference=True) as root:
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        root.addfile(temporary)
        for path, text in _TEXTS.items():
            info = tarfile.TarInfo(path)
            info.size = len(text)
            root.addfile(info, io.BytesIO(text.encode()))
        for source in runtime_files(java):
            root.add(source, arcname=str(source))
        for jar in sorted(jars.iterdir()):
            root.add(jar, arcname=f"{product.home}/lib/{jar.name}")
