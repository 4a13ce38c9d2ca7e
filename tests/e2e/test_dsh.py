"""The bundle for DSH: its tests run under two versions of Node, in DSH's own registries, against a real daemon."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.node_tools import machine_node, patient, run_node, run_node_tests, tool

import amnesiad
from amnesiad import Client

pytestmark = patient

BUNDLE = Path(amnesiad.__file__).parent / "bundles" / "dsh"


@pytest.fixture
def repository(tmp_path: Path) -> tuple[str, str]:
    """A repository and a second working tree of it."""
    whole, tree = tmp_path / "repository", tmp_path / "tree"
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    for command in (
        ["init", "--quiet", str(whole)],
        ["-C", str(whole), "commit", "--quiet", "--allow-empty", "--message", "one"],
        ["-C", str(whole), "worktree", "add", "--quiet", str(tree)],
    ):
        subprocess.run([*git, *command], check=True, capture_output=True)
    return str(whole.resolve()), str(tree)


@pytest.mark.parametrize("which", ["machine", "npm"])
def test_the_bundle_keeps_its_promises_in_dsh(which: str, daemon: str, repository: tuple[str, str]) -> None:
    """Tools, injection, lifecycle, command and views work, and what is unloaded is gone: see ``dsh.test.mjs``."""
    node = machine_node() if which == "machine" else tool("node")
    whole, tree = repository
    run_node_tests(
        node, "dsh.test.mjs", SOCKET=daemon, SCRATCH=str(Path(daemon).parent), REPOSITORY=whole, WORKTREE=tree
    )


def test_the_bundle_works_under_the_loop_of_dsh(daemon: str) -> None:
    """With DSH's own agent loop and a scripted model: see ``dsh.loop.test.mjs``."""
    run_node_tests(tool("node"), "dsh.loop.test.mjs", SOCKET=daemon)


def test_a_host_that_loaded_the_bundle_ends_by_itself(daemon: str) -> None:
    """Neither the feed nor a timer keeps the host's process alive, and after unloading nothing of the bundle is
    left."""
    program = """
        import { Host } from "./host.mjs";
        import * as bundle from "../../daemon/amnesiad/bundles/dsh/index.mjs";
        const open = () => process.getActiveResourcesInfo().filter((kind) => /Timeout|Pipe|Connect/.test(kind)).join();
        const before = [process.stdout, process.stderr] && open();  // both are opened by the first look at them
        const host = await Host.start([bundle, { workspace: "ends", patienceMs: 20_000 }]);
        const agent = host.agent("main");
        await host.call(agent, "amnesia_remember", { content: "said", ttl: "7d" });
        console.log((await host.step(agent)).includes("said"));
        if (process.argv[1] === "unload") {
            await host.unload();
            // A socket that was closed is gone within the next turns of the loop.
            for (let turn = 0; turn < 100 && open() !== before; turn += 1) await new Promise(setImmediate);
            console.log(open() === before || open());
        }
    """
    with Client(daemon, workspace="ends") as memory:  # loads what the daemon needs for its first answer
        memory.remember("the first of all")
        memory.inject()
    asked = ("--input-type=module", "--eval", program)
    assert run_node(machine_node(), *asked, AMNESIA_SOCKET=daemon) == "true\n"
    assert run_node(machine_node(), *asked, "unload", AMNESIA_SOCKET=daemon) == "true\ntrue\n"


def test_the_bundle_is_what_dsh_looks_for_and_holds_all_its_files() -> None:
    """The package names its patch, the patch names the package, and every file it imports or reads is in its folder."""
    package = json.loads((BUNDLE / "package.json").read_text())
    assert package["version"] == json.loads((BUNDLE.parent / "node" / "package.json").read_text())["version"]
    assert package["version"] == amnesiad.__version__
    patch = (BUNDLE / package["dsh"]["bundle"]["patch"]).read_text()
    assert f"name: {package['name']}\n" in patch
    for file in BUNDLE.glob("*.mjs"):
        for line in file.read_text().splitlines():
            if line.startswith("import ") and '"./' in line:
                assert (BUNDLE / line.split('"./')[1].split('"')[0]).is_file(), line
    assert (BUNDLE / "tools.json").is_file()
