#!/usr/bin/env bash
# Get what the browser tests need: Chromium, and a font with Chinese characters. Quiet when both are there.
set -euo pipefail

missing=()
command -v chromium chromium-browser google-chrome > /dev/null || missing+=(chromium)
{ command -v fc-list > /dev/null && fc-list :lang=zh | grep -q .; } || missing+=(fonts-noto-cjk fontconfig)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    echo "Installing ${missing[*]} ..."
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install --yes --no-install-recommends "${missing[@]}" < /dev/null > /dev/null
else
    echo "The browser tests need ${missing[*]}. On Debian: sudo apt-get install ${missing[*]}" >&2
fi
