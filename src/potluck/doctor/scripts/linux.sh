#!/usr/bin/env bash
# Written by: potluck doctor --fix-script linux
# For the machine @MACHINE@, so that these peers can train with it: @PEERS@
# Read it, then run it as root: sudo bash FILE. A second run changes nothing more.
# The script that takes it all back: potluck doctor --fix-script linux --undo (with the same --peer)
set -euo pipefail # so grep reads to the end below: with -q it would break the pipe

peers=(@PEERS@)
# Lines for the hosts file, "ADDRESS NAME"; none if no names were given.
hosts=(@HOSTS@)

if [ "$(id -u)" -ne 0 ]; then
  echo "run this as root: sudo bash $0" >&2
  exit 1
fi

# 1. The firewall, for the peers and for Potluck's one port only.
if command -v ufw >/dev/null && ufw status | grep '^Status: active' >/dev/null; then
  for peer in "${peers[@]}"; do
    ufw allow from "$peer" to any port @PORT@ proto tcp comment potluck # ufw skips a rule that is there
  done
elif command -v firewall-cmd >/dev/null && firewall-cmd --state >/dev/null 2>&1; then
  for peer in "${peers[@]}"; do
    rule="rule family=\"ipv4\" source address=\"$peer\" port port=\"@PORT@\" protocol=\"tcp\" accept"
    firewall-cmd --permanent --query-rich-rule="$rule" >/dev/null || firewall-cmd --permanent --add-rich-rule="$rule"
  done
  firewall-cmd --reload
elif command -v nft >/dev/null && nft list chains | grep 'hook input' >/dev/null; then
  # Every chain that sees incoming packets: each of them can refuse one.
  nft list chains | awk '/^table/ { family = $2; table = $3 } /^\tchain/ { chain = $2 }
      /type filter hook input/ { print family, table, chain }' |
    while read -r family table chain; do
      for peer in "${peers[@]}"; do
        if ! nft list chain "$family" "$table" "$chain" | grep "ip saddr $peer .*comment \"potluck\"" >/dev/null; then
          nft insert rule "$family" "$table" "$chain" ip saddr "$peer" tcp dport @PORT@ accept comment potluck
        fi
      done
    done
  echo "the rules last until the next start; to keep them, add them to /etc/nftables.conf"
elif command -v iptables >/dev/null; then
  for peer in "${peers[@]}"; do
    rule=(INPUT --source "$peer" --protocol tcp --dport @PORT@ --jump ACCEPT)
    iptables --check "${rule[@]}" 2>/dev/null || iptables --insert "${rule[@]}"
  done
else
  echo "no firewall is active: nothing to open"
fi

# 2. Names of the peers, if they were given.
for line in "${hosts[@]}"; do
  grep -qxF "$line # potluck" /etc/hosts || echo "$line # potluck" >>/etc/hosts
done

# 3. Shared memory for data loaders, if there is less than 512 MiB; until the next start.
if [ "$(df --output=size -B1M /dev/shm | tail -n 1)" -lt 512 ]; then
  mount -o remount,size=1G /dev/shm
fi

echo "done; see: potluck doctor"
