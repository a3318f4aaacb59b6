"""
A broker as a container, by testcontainers; its image is pulled, unless it is there or was made by `jmsx broker images`.

The broker's Java is started directly, with our configuration beside it, instead of by the start script of the image:
the same broker comes out of each image, and it has what `statistics` needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

from jmsx.errors import ConfigurationError, IllegalStateError
from jmsx_broker.artemis_recipe import ArtemisRecipe, Setting
from jmsx_broker.classic_recipe import ClassicRecipe
from jmsx_broker.docker import docker_client, told_errors
from jmsx_broker.own import OtherPorts, OwnBroker
from jmsx_broker.recipe import JAVA_OPTIONS, Listeners, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testcontainers.core.container import DockerContainer


#: The working folder of the broker in its container.
_FOLDER: Final = "/jmsx"

#: Ports in the container.
_STOMP: Final = 61613
_OPENWIRE: Final = 61616
_TLS: Final = 61614

#: Java runs as root: files that are copied into a container belong to root, so only root can write to the folder.
_USER: Final = "0"

#: The log level for the published images: without it their library logs errors only; INFO would log each message.
_LOGGING: Final = "-Dlog4j2.level=WARN"


class ContainerBroker(OwnBroker):
    """
    A broker in a Docker container, with its ports on this machine. Its messages stay until `close()`.

    Docker opens the ports to the network of this machine, and without `users` the broker lets everybody in.

    Args:
        recipe: which kind, and how it is configured.
        port: of STOMP, on this machine; 0 takes a free one.
        image: None is the one that the makers of the broker publish.
        others: as for `OwnBroker`, on this machine.

    """

    _look = 0.25  # each look asks the Docker daemon

    def __init__(
        self, recipe: Recipe, port: int, *, image: str | None = None, **others: Unpack[OtherPorts]
    ) -> None:
        super().__init__(recipe, port, **others)
        self._image = image or recipe.product.image
        self._container: DockerContainer | None = None

    @property
    def running(self) -> bool:
        """Whether the broker's container runs, paused or not."""
        return self._container is not None and self._state() in {"running", "paused"}

    @property
    def container(self) -> DockerContainer:
        """Its container; raises IllegalStateError before the first start."""
        if self._container is None:
            raise IllegalStateError("the broker has no container before its first start")
        return self._container

    def stop(self, timeout: float = 15.0) -> None:
        """Stop the broker in good order, after `timeout` seconds by force; messages stay. Does nothing if stopped."""
        if self._wake():
            with told_errors():
                self._wrapped().stop(timeout=round(timeout))

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL); persistent messages stay. Does nothing if it is stopped."""
        if self._wake():
            with told_errors():
                self._wrapped().kill()
                self._wrapped().wait()

    def pause(self) -> None:
        """Freeze the broker: connections stay open and nothing answers."""
        with told_errors():
            self._wrapped().pause()

    def resume(self) -> None:
        """Let a paused broker go on."""
        with told_errors():
            self._wrapped().unpause()

    def close(self) -> None:
        """Remove its container, and with it its messages; in the child of a fork do nothing."""
        if self._inherited:
            return
        try:
            if self._container is not None:
                with told_errors():
                    self._container.stop()
        finally:
            self._container = None
            super().close()

    def _host(self) -> str:
        return self.container.get_container_host_ip()

    def _prepare(self) -> None:
        """Look for a daemon, and pull the image if it is not there."""
        with docker_client() as client:
            _pull(client, self._image)

    def _launch(self) -> None:
        with told_errors():
            if self._container is not None:
                self._wrapped().start()
                return
            container = self._new_container()
            try:
                container.start()
            except BaseException:
                container.stop()  # removes what was created
                raise
            self._container = container

    def _new_container(self) -> DockerContainer:
        """Return a container that will start the broker's Java with our configuration."""
        from testcontainers.core.container import (  # noqa: PLC0415 - the extra for containers may be missing
            DockerContainer,
        )

        recipe, home = self._recipe, self._recipe.product.home
        # the published Classic has the library of STOMP in a folder of its own
        classes = f"{home}/lib/*:{home}/lib/optional/*"
        container = DockerContainer(self._image).with_kwargs(
            entrypoint=["java", *JAVA_OPTIONS, _LOGGING, "-cp", classes, *recipe.main],
            user=_USER,
            working_dir=_FOLDER,
        )
        container.with_command([])
        container.with_bind_ports(_STOMP, self._port)
        container.with_bind_ports(_OPENWIRE, self._openwire_port)
        tls = self._tls_connector(_TLS)
        if tls is not None:
            container.with_bind_ports(_TLS, self._tls_port)
            for store in (self.certificates.key_store, self.certificates.trust_store):
                container.with_copy_into_container(store, f"{_FOLDER}/tls/{store.name}")
        listeners = Listeners(host="0.0.0.0", stomp=_STOMP, openwire=_OPENWIRE, tls=tls)  # noqa: S104 - of the container
        for path, text in recipe.files(listeners).items():
            container.with_copy_into_container(text.encode(), f"{_FOLDER}/{path}")
        return container

    def _exit_code(self) -> int | None:
        if self.running:
            return None
        code: int = self._wrapped().attrs["State"]["ExitCode"]
        return code

    def _logged(self) -> str:
        return "".join(part.decode("utf-8", "replace") for part in self.container.get_logs())

    def _wrapped(self) -> Any:
        """Return the Docker library's own object for the container."""
        return self.container.get_wrapped_container()

    def _state(self) -> str:
        """Return what the container does now, in Docker's words."""
        with told_errors():
            wrapped = self._wrapped()
            wrapped.reload()
        return str(wrapped.status)

    def _wake(self) -> bool:
        """Unpause the container, so that it can receive a signal; return False if it does not run."""
        if (
            self._inherited
            or self._container is None
            or (state := self._state()) not in {"running", "paused"}
        ):
            return False
        if state == "paused":
            self.resume()
        return True


class ClassicContainer(ContainerBroker):
    """
    ActiveMQ Classic 6 in a container, with the options of `ClassicBroker` but `data`, and `image`.

    Without `image` it is the published one, apache/activemq-classic.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        image: str | None = None,
        users: Mapping[str, str] | None = None,
        **others: Unpack[OtherPorts],
    ) -> None:
        super().__init__(ClassicRecipe(users=users or {}), port, image=image, **others)


class ArtemisContainer(ContainerBroker):
    """
    ActiveMQ Artemis 2 in a container, with the options of `ArtemisBroker` but `data`, and `image`.

    Without `image` it is the published one, apache/activemq-artemis.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        image: str | None = None,
        users: Mapping[str, str] | None = None,
        address_settings: Mapping[str, Mapping[str, Setting]] | None = None,
        stomp_options: Mapping[str, Setting] | None = None,
        persistent: bool = True,
        **others: Unpack[OtherPorts],
    ) -> None:
        recipe = ArtemisRecipe(
            users=users or {},
            address_settings=address_settings or {},
            stomp_options=stomp_options or {},
            persistent=persistent,
        )
        super().__init__(recipe, port, image=image, **others)


def _pull(client: Any, image: str) -> None:
    """Pull an image unless the daemon has it."""
    if client.images.list(name=image):
        return
    try:
        with told_errors():
            client.images.pull(image)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"there is no image {image}, and it cannot be pulled ({error});"
            " make it with: jmsx broker images"
        ) from error
