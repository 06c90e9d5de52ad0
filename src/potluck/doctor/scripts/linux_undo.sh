#!/usr/bin/env bash
# Written by: potluck doctor --fix-script linux --undo
# Takes back on @MACHINE@ what the script without --undo did for: @PEERS@
# Run it as root: sudo bash FILE. A second run changes nothing more. /dev/shm is as before after the next start.
set -euo pipefail # so grep reads to the end below: with -q it would break the pipe

peers=(@PEERS@)

if [ "$(id -u)" -ne 0 ]; then
  echo "run this as root: sudo bash $0" >&2
  exit 1
fi

# 1. The firewall: only rules that the script made.
if command -v ufw >/dev/null && ufw status | grep '^Status: active' >/dev/null; then
  for peer in "${peers[@]}"; do
    ufw delete allow from "$peer" to any port @PORT@ proto tcp || true # gone already
  done
elif command -v firewall-cmd >/dev/null && firewall-cmd --state >/dev/null 2>&1; then
  for peer in "${peers[@]}"; do
    rule="rule family=\"ipv4\" source address=\"$peer\" port port=\"@PORT@\" protocol=\"tcp\" accept"
    if firewall-cmd --permanent --query-rich-rule="$rule" >/dev/null; then
      firewall-cmd --permanent --remove-rich-rule="$rule"
    fi
  done
  firewall-cmd --reload
elif command -v nft >/dev/null && nft list chains | grep 'hook input' >/dev/null; then
  nft list chains | awk '/^table/ { family = $2; table = $3 } /^\tchain/ { chain = $2 }
      /type filter hook input/ { print family, table, chain }' |
    while read -r family table chain; do
      for peer in "${peers[@]}"; do
        nft --handle list chain "$family" "$table" "$chain" |
          awk -v peer="$peer" 'index($0, "ip saddr " peer " ") && /comment "potluck"/ { print $NF }' |
          while read -r handle; do
            nft delete rule "$family" "$table" "$chain" handle "$handle"
          done
      done
    done
elif command -v iptables >/dev/null; then
  for peer in "${peers[@]}"; do
    rule=(INPUT --source "$peer" --protocol tcp --dport @PORT@ --jump ACCEPT)
    while iptables --check "${rule[@]}" 2>/dev/null; do
      iptables --delete "${rule[@]}"
    done
  done
fi

# 2. Names of the peers. Written through the file, since it may be a mount of its own.
kept=$(grep -v ' # potluck$' /etc/hosts || true)
printf '%s\n' "$kept" >/etc/hosts

echo "done"
