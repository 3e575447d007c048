#!/usr/bin/env bash
# Puts Kotlin's library and its test library where Debian's Maven looks for artifacts.
#   install_artifacts.sh <version>
set -euo pipefail

version=${1:?which version the jars are}

for artifact in kotlin-stdlib kotlin-test; do
  folder=/usr/share/maven-repo/org/jetbrains/kotlin/$artifact/$version
  mkdir -p "$folder"
  ln -s "/opt/kotlin/lib/$artifact.jar" "$folder/$artifact-$version.jar"
  cat >"$folder/$artifact-$version.pom" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.jetbrains.kotlin</groupId>
  <artifactId>$artifact</artifactId>
  <version>$version</version>
</project>
POM
done
