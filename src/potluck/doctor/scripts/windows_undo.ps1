# Written by: potluck doctor --fix-script windows --undo
# Takes back on the Windows of @MACHINE@ what the script without --undo did.
# Run it in PowerShell as administrator: powershell -ExecutionPolicy Bypass -File FILE
# -UserProfile C:\Users\NAME names the account whose .wslconfig is changed back; the script finds it by itself.
# A second run changes nothing more. It ends all WSL sessions at its end.
#Requires -RunAsAdministrator
param([string]$UserProfile = '')
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

@OWNER@

# 1. Firewall rules, by their name.
if (Get-NetFirewallRule -Name 'potluck' -ErrorAction SilentlyContinue) {
    Remove-NetFirewallRule -Name 'potluck'
}
if (Get-Command Get-NetFirewallHyperVRule -ErrorAction SilentlyContinue) {
    if (Get-NetFirewallHyperVRule -Name 'potluck' -ErrorAction SilentlyContinue) {
        Remove-NetFirewallHyperVRule -Name 'potluck'
    }
}

# 2. The forwarded port, where there is one.
netsh interface portproxy delete v4tov4 listenport=@PORT@ listenaddress=0.0.0.0 | Out-Null

# 3. Profile and metric of the adapter, as they were.
$stateFile = Join-Path (Join-Path $env:ProgramData 'potluck') 'before.json'
if (Test-Path $stateFile) {
    $before = Get-Content $stateFile -Raw | ConvertFrom-Json
    if ($before.category -eq 'Public') {
        Set-NetConnectionProfile -InterfaceAlias $before.alias -NetworkCategory Public
    }
    if ($before.automaticMetric -eq 'Enabled') {
        Set-NetIPInterface -InterfaceAlias $before.alias -AddressFamily IPv4 -AutomaticMetric Enabled
    }
    else {
        Set-NetIPInterface -InterfaceAlias $before.alias -AddressFamily IPv4 -InterfaceMetric $before.metric
    }
    Remove-Item $stateFile
}

# 4. The networking mode of WSL: its default.
$config = Join-Path $UserProfile '.wslconfig'
if (Test-Path $config) {
    $lines = @(Get-Content $config | Where-Object { $_ -notmatch '^\s*networkingMode\s*=' })
    $lines | Set-Content -Path $config -Encoding ascii
}

if ($isOwner) { wsl --shutdown }
else { Write-Output "as $owner, in an ordinary PowerShell, type: wsl --shutdown" }
Write-Output 'done'
