"""`kbench engine`: which container engine answers."""

import click


@click.command()
def engine() -> None:
    """Say which container engine answers; exit 2 where none does."""
    from kbench_build.rim.engines import connect  # noqa: PLC0415
    from kbench_build.rim.engines.address import engine_address  # noqa: PLC0415

    images = connect("docker").images()
    click.echo(f"the engine at {engine_address()} answers and holds {len(images)} tagged images")
