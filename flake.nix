{
  description = "Forward proxy that makes any crawler obey robots.txt";

  # Rust 1.95 or later.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
      manifest = (nixpkgs.lib.importTOML ./Cargo.toml).package;
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = manifest.name;
          inherit (manifest) version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          nativeBuildInputs = [
            pkgs.cmake
            pkgs.installShellFiles
            pkgs.pkg-config
          ];
          buildInputs = [ pkgs.openssl ];
          # For zlib-ng alone, whose crate calls it.
          dontUseCmakeConfigure = true;
          # They bind ports and start other programs.
          doCheck = false;
          postInstall = ''
            $out/bin/politely man --directory man
            installManPage man/*
            for shell in bash zsh fish; do
              $out/bin/politely completions $shell > politely.$shell
            done
            installShellCompletion politely.{bash,zsh,fish}
            install -D -m 644 -t $out/share/politely conf/agent.yaml
            install -D -m 644 -t $out/share/politely/prometheus conf/prometheus/politely.rules.yml
            install -D -m 644 -t $out/share/politely/grafana conf/grafana/politely.json
          '';
          meta = {
            inherit (manifest) description;
            homepage = manifest.repository;
            license = nixpkgs.lib.licenses.asl20;
            mainProgram = "politely";
            platforms = systems;
          };
        };
      });

      overlays.default = _: prev: { politely = self.packages.${prev.stdenv.hostPlatform.system}.default; };

      devShells = each (pkgs: {
        default = pkgs.mkShell {
          inputsFrom = [ self.packages.${pkgs.stdenv.hostPlatform.system}.default ];
          packages = [
            pkgs.cargo
            pkgs.clippy
            pkgs.rustfmt
          ];
        };
      });
    };
}
