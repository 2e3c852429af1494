// Carillon · ReleaseTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

/// Tarballs of releases, and the places of the version.
@Suite("Releases", .timeLimit(.minutes(10)))
struct ReleaseTests {
    /// Runs a script in an empty folder, after the libraries that read versions and tarballs.
    private static func run(_ script: String) async throws -> (text: String, exit: ChildProcess.Exit) {
        try await House.run(script, libraries: ["messages", "version", "tarball"])
    }

    /// Makes the folder of a release whose `deploy/up` prints its arguments.
    ///
    /// `pack` makes a tarball of it, and `up` runs that.
    private static let release = #"""
        name=carillon-9.9.9-linux-$(uname -m)
        mkdir -p out "$name/bin" "$name/deploy"
        printf '#!/bin/bash\necho "started with $*"\n' >"$name/deploy/up"
        chmod +x "$name/deploy/up"
        echo program >"$name/bin/gateway"
        (cd "$name" && find . -type f -printf '%P\n' | sort | xargs sha256sum >../sums && mv ../sums SHA256SUMS)
        pack() { tar -czf "out/$name.tar.gz" "$@" && (cd out && sha256sum "$name.tar.gz" >SHA256SUMS); }
        up() { "$ROOT/deploy/up" --from "out/$name.tar.gz" --data "$PWD/data" --port 0 --no-demo; }

        """#

    @Test("deploy/up --from unpacks a tarball and runs its own deploy/up on the same data")
    func from() async throws {
        let (text, exit) = try await Self.run(Self.release + #"pack "$name" && up && up && ls -A data/versions; pwd"#)
        #expect(exit == .code(0), "\(text)")
        let folder = text.split(separator: "\n").last ?? ""
        #expect(
            text.components(separatedBy: "started with --port 0 --no-demo --data \(folder)/data\n").count == 3,
            "\(text)")
        #expect(text.contains(" is unpacked\n"), "the second start unpacks nothing")
    }

    @Test("deploy/up --from unpacks a release again when a file of it was changed")
    func repairs() async throws {
        let (text, exit) = try await Self.run(
            Self.release + #"""
                pack "$name" && up
                echo changed >"data/versions/$name/bin/gateway"
                up && cat "data/versions/$name/bin/gateway"
                """#)
        #expect(exit == .code(0) && text.hasSuffix("program\n"), "\(text)")
    }

    @Test(
        "deploy/up --from refuses a tarball that differs from its checksums, and leaves nothing behind",
        arguments: [
            (#"pack "$name"; echo x >>"out/$name.tar.gz""#, "does not match its checksum in out/SHA256SUMS"),
            (#"pack "$name"; rm out/SHA256SUMS"#, "out/SHA256SUMS is missing; download it"),
            (#"pack "$name"; echo >out/SHA256SUMS"#, "out/SHA256SUMS has no checksum of carillon-9.9.9"),
            (#"echo changed >"$name/bin/gateway"; pack "$name""#, "bin/gateway: FAILED"),
            (#"echo x >"$name/bin/more"; pack "$name""#, "bin/more: not in SHA256SUMS"),
            (#"rm "$name/bin/gateway"; pack "$name""#, "bin/gateway: FAILED open or read"),
            (#"ln -s /etc/passwd "$name/bin/link"; pack "$name""#, "bin/link: neither a file nor a folder"),
            (#"echo x >other; pack "$name" other"#, "it holds more than the folder carillon-9.9.9"),
            (#"pack "$name"; truncate -s 100 "out/$name.tar.gz"; (cd out && sha256sum *.gz >SHA256SUMS)"#, "unpacked"),
            (#"name=carillon-9.9.9-linux-z80; touch out/$name.tar.gz"#, "is for z80, and this machine is"),
            (#"name=other; touch out/other.tar.gz"#, "keep the name of the release"),
        ])
    func refuses(damage: String, error: String) async throws {
        let (text, exit) = try await Self.run(
            Self.release + damage + "\nup || echo \"status $?\"\nfind data/versions -mindepth 1 2>/dev/null || true")
        #expect(exit == .code(0) && text.contains(error) && text.hasSuffix("status 1\n"), "\(text)")
        #expect(!text.contains("started with"))
    }

    @Test("every place of the version in deploy/lib/version.sh exists, and all programs and packages agree")
    func places() async throws {
        let version = try await Self.run(#"read_version "$ROOT""#).text.trimmingCharacters(in: .newlines)
        #expect(version.contains(#/^\d+\.\d+\.\d+(-dev)?$/#))
        let (text, exit) = try await Self.run(
            #"""
            mkdir copy
            while read -r file _; do
                file=${file#\?}
                [[ -z $file || ! -e $ROOT/$file ]] || (cd "$ROOT" && cp --parents "$file" "$OLDPWD/copy")
            done <<<"$CODE_VERSIONS$RELEASE_VERSIONS"
            old=$(read_version copy)
            set_versions copy "$CODE_VERSIONS" 98.7.6
            ! grep -rF -- "\"$old\"" copy || exit 1
            set_versions copy "$RELEASE_VERSIONS" 98.7.6
            read_version copy
            """#)
        #expect(exit == .code(0) && text == "98.7.6\n", "\(text)")
    }

    @Test("files name only images and tarballs of a release in the changelog or of the next one")
    func releases() async throws {
        let (text, exit) = try await Self.run(
            #"""
            {
                version=$(read_version "$ROOT") && echo "${version%-dev}"
                sed -nE "s/^## ($NUMBERS) .*/\1/p" "$ROOT/CHANGELOG.md"
            } | sort >releases
            while IFS= read -r line; do
                file=${line#    } text=${file#* } file=${file%% *}
                file=$ROOT/${file#\?}
                [[ -n $line && -e $file ]] || continue
                grep -oE -- "$text$NUMBERS" "$file" | grep -oE "$NUMBERS\$"
            done <<<"$RELEASE_VERSIONS" | sort -u | comm -23 - releases
            """#)
        #expect(exit == .code(0) && text.isEmpty, "run set_versions of deploy/lib/version.sh: \(text)")
    }

    @Test("no other file has the version of development, which a release would leave there")
    func otherPlaces() async throws {
        let (text, exit) = try await Self.run(
            #"""
            version=$(read_version "$ROOT")
            [[ $version == *-dev ]] || exit 0
            sed -n 's/^ *?\{0,1\}\([^ ]*\) .*/\1/p' <<<"$CODE_VERSIONS$RELEASE_VERSIONS" | sort >places
            (cd "$ROOT" &&
                grep -rlIF --exclude-dir={.build,.git,.local,node_modules} --exclude=CHANGELOG.md -- "$version" .) |
                sed 's|^\./||' | sort >found
            comm -13 places found
            """#)
        #expect(exit == .code(0) && text.isEmpty, "add to the lists in deploy/lib/version.sh: \(text)")
    }

    @Test("a release is newer than its development version and than earlier numbers")
    func order() async throws {
        for (version, other, isNewer) in [
            ("70.0.0", "70.0.0-dev", true), ("70.0.0-dev", "70.0.0", false), ("70.10.0", "70.9.0", true),
            ("70.1.0-dev", "70.0.9", true), ("69.9.0", "70.0.0-dev", false), ("70.0.0", "70.0.0", false),
        ] {
            let (text, exit) = try await Self.run("is_newer \(version) \(other)")
            #expect((exit == .code(0)) == isNewer, "\(version) after \(other): \(text)")
        }
    }

    @Test("an unpacked release needs no package for building")
    func packages() async throws {
        let (text, exit) = try await Self.run(
            #"source "$ROOT/deploy/lib/install.sh"; echo "$LIBRARY_PACKAGES$RUNNING_PACKAGES""#)
        #expect(exit == .code(0) && text.contains("libhiredis0.14 ") && text.contains("redis-server "))
        #expect(!text.contains("-dev ") && !text.contains("g++") && !text.contains("binutils"), "\(text)")
        let runtime = try House.text("deploy/docker/steps").firstMatch(of: #/RUNTIME_PACKAGES=\((.*)\)/#)?.output.1
        for package in try #require(runtime).split(separator: " ") {
            #expect(text.contains("    \(package) "), "\(package)")
        }
    }
}
