#!/usr/bin/env python3
# Carillon · sbom.py
# SPDX-License-Identifier: Apache-2.0
"""Lists the components of a package as SPDX 2.3 JSON, and copies their licences.

Lists the Swift packages that the programs link, Swift's own libraries, and the Debian packages of
the libraries that the programs load. The same build makes the same bytes. Needs only Python, and
ldd, readelf and dpkg-query of Debian.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

PRODUCTS = ("gateway", "dispatcher", "provider-sandbox")
CHECKOUT = re.compile(r"/checkouts/([^/\s]+)/")
LICENSE_FILES = re.compile(r"(LICENSE|LICENCE|NOTICE|COPYING)(\.txt|\.md)?", re.IGNORECASE)


class Fault(Exception):
    """The list would be incomplete."""


def output(*command):
    """Runs a command and returns its standard output."""
    variables = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=variables).stdout


# Swift packages.


def source_of(build):
    """Returns the checkout that a module's build folder was compiled from; None for our own modules."""
    files = [build / "output-file-map.json"]
    if not files[0].exists():
        # A module in C has a file of dependencies for each source.
        files = sorted(build.rglob("*.d"))
    if not files:
        raise Fault(f"{build} does not say what it was compiled from")
    for file in files:
        if found := CHECKOUT.search(file.read_text()):
            return found[1].lower()
    return None


def linked_packages(scratch):
    """Returns the identities of the packages whose objects the products link."""
    builds = set()
    for product in PRODUCTS:
        objects = scratch / "release" / f"{product}.product" / "Objects.LinkFileList"
        if not objects.exists():
            raise Fault(f"{objects} is missing; build {product} first")
        for line in objects.read_text().splitlines():
            path = Path(line.strip("'\""))
            builds.update(parent for parent in path.parents if parent.suffix == ".build" and parent.name != ".build")
    return {name for build in builds if (name := source_of(build))}


def license_of(folder):
    """Returns the SPDX identifier of a checkout's licence."""
    text = "".join(file.read_text(errors="replace") for file in sorted(folder.iterdir())
                   if file.name.upper().startswith(("LICENSE", "LICENCE")))
    if "Apache License" in text:
        return "Apache-2.0 WITH Swift-exception" if "Runtime Library Exception" in text else "Apache-2.0"
    return "MIT" if "Permission is hereby granted, free of charge" in text else "NOASSERTION"


def swift_packages(pins, linked, checkouts):
    """Returns the packages of the linked pins, and the folders with their licences."""
    folders = {folder.name.lower(): folder for folder in checkouts.iterdir()}
    packages, licenses = [], {}
    for pin in sorted(pins, key=lambda pin: pin["identity"]):
        name, state = pin["identity"], pin["state"]
        if name not in linked:
            continue
        if name not in folders:
            raise Fault(f"{checkouts} lacks {name}")
        location = pin["location"].removesuffix(".git")
        version = state.get("version") or state["revision"]
        packages.append(("STATIC_LINK", package(
            name, version, f"git+{location}.git@{state['revision']}", license_of(folders[name]),
            f"pkg:swift/{location.removeprefix('https://')}@{version}")))
        licenses[name] = folders[name]
    if missing := linked - licenses.keys():
        raise Fault(f"Package.resolved lacks {', '.join(sorted(missing))}")
    return packages, licenses


# Debian packages.


def loaded_libraries(programs):
    """Returns the paths of the system libraries that the files of a folder name themselves."""
    paths = set()
    for file in sorted(programs.iterdir()):
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "--dynamic", "--wide", str(file))))
        if not needed:
            continue
        for name, path in re.findall(r"(\S+) (?:=> )?(/\S+) \(0x", output("ldd", str(file)).replace("\t", "")):
            if name in needed and Path(path).parent != programs:
                paths.add(path)
        # ldd prints no arrow for the loader, which always belongs to libc6.
    return paths


def owner_of(path):
    """Returns the Debian package of a library."""
    # dpkg may list a file of /usr/lib under /lib, and the other way round.
    for candidate in (path, f"/usr{path}", path.removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(": ")[0].split(",")[0]
    raise Fault(f"no Debian package has {path}")


def debian_packages(programs):
    """Returns the packages of the libraries that the programs load."""
    packages = []
    for name in sorted({owner_of(path) for path in loaded_libraries(programs)}):
        version, architecture, source = output(
            "dpkg-query", "--show", "--showformat=${Version}\n${Architecture}\n${source:Package}", name).splitlines()
        name = name.split(":")[0]
        packages.append(("DYNAMIC_LINK", package(
            name, version, "NOASSERTION", "NOASSERTION",
            f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}",
            sourceInfo=f"Debian's source package {source}; the version that the programs were linked with")))
    return packages


# The document.


def package(name, version, location, license, purl=None, **members):
    """Returns a package in SPDX's form."""
    made = {
        "SPDXID": "SPDXRef-Package-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": location,
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
    }
    if purl:
        made["externalRefs"] = [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    return {**made, **members}


def swift_runtime(version, programs):
    """Returns Swift's own libraries as one package."""
    libraries = sorted(file.name for file in programs.iterdir() if file.name not in PRODUCTS)
    return package("swift", version, "https://www.swift.org/download/", "Apache-2.0 WITH Swift-exception",
                   comment="Contains " + ", ".join(libraries))


def document(arguments, packages):
    """Returns the document; its namespace follows from its contents."""
    root = package("carillon", arguments.version, "NOASSERTION", "Apache-2.0", primaryPackagePurpose="APPLICATION",
                   sourceInfo=f"git commit {arguments.commit}")
    relationships = [("SPDXRef-DOCUMENT", "DESCRIBES", root["SPDXID"])]
    relationships += [(root["SPDXID"], kind, made["SPDXID"]) for kind, made in packages]
    body = {
        "creationInfo": {
            "created": datetime.fromtimestamp(arguments.created, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: carillon-deploy-package"],
        },
        "packages": [root] + [made for _, made in packages],
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in relationships],
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": arguments.name,
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{arguments.name}/{digest}')}",
        **body,
    }


def copy_licenses(folders, target):
    """Copies the licences and notices of each package."""
    for name, folder in folders.items():
        files = [file for file in folder.iterdir() if file.is_file() and LICENSE_FILES.fullmatch(file.name)]
        if not files:
            raise Fault(f"{folder} has no licence")
        (target / name).mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copyfile(file, target / name / file.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", required=True, help="name of the package")
    parser.add_argument("--version", required=True, help="version of Carillon")
    parser.add_argument("--commit", required=True, help="commit of the checkout")
    parser.add_argument("--created", required=True, type=int, help="time of the document, in seconds since 1970")
    parser.add_argument("--resolved", required=True, type=Path, help="Package.resolved")
    parser.add_argument("--scratch", required=True, type=Path, help="folder of the release build")
    parser.add_argument("--programs", required=True, type=Path, help="folder of the collected programs")
    parser.add_argument("--swift", required=True, help="output of `swift --version`")
    parser.add_argument("--licenses", required=True, type=Path, help="folder to copy licences to")
    parser.add_argument("--output", required=True, type=Path, help="file to write")
    arguments = parser.parse_args()
    version = re.search(r"Swift version (\S+)", arguments.swift)
    if not version:
        raise Fault("--swift names no version")
    pins = json.loads(arguments.resolved.read_text())["pins"]
    packages, licenses = swift_packages(pins, linked_packages(arguments.scratch), arguments.scratch / "checkouts")
    packages.append(("CONTAINS", swift_runtime(version[1], arguments.programs)))
    debian = debian_packages(arguments.programs)
    copy_licenses(licenses, arguments.licenses)
    arguments.output.write_text(json.dumps(document(arguments, packages + debian), indent=2, ensure_ascii=False) + "\n")
    print(f"    {len(licenses)} Swift packages, Swift {version[1]}, {len(debian)} Debian packages")


if __name__ == "__main__":
    try:
        main()
    except (OSError, Fault, subprocess.CalledProcessError) as error:
        sys.exit(f"sbom.py: {error}")
