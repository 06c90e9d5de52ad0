# Written by: potluck doctor --fix-script windows
# For the Windows of @MACHINE@, so that these peers can train with its WSL2: @PEERS@
# Read it, then run it in PowerShell as administrator: powershell -ExecutionPolicy Bypass -File FILE
# If the administrator is another account than the one that uses WSL, the script finds whose desktop this is and changes
# that account's .wslconfig; -UserProfile C:\Users\NAME names it. On Windows 10 add -Guest ADDRESS then: what
# "wsl hostname -I" prints first in the PowerShell of the account that uses WSL.
# A second run changes nothing more. Where it changes the network of WSL, it ends all WSL sessions.
# The script that takes it all back: potluck doctor --fix-script windows --undo
#Requires -RunAsAdministrator
param([string]$UserProfile = '', [string]$Guest = '')
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$peers = @(@PEERS_QUOTED@)
$port = '@PORT@'  # everything between machines goes through this one
$vmCreator = '{40E0AC32-46A5-438A-A0B2-2B479E8F2E90}'  # WSL, as Windows knows it
$build = [Environment]::OSVersion.Version.Build
$stateFolder = Join-Path $env:ProgramData 'potluck'
$stateFile = Join-Path $stateFolder 'before.json'

@OWNER@
if (-not (Test-Path $UserProfile)) { throw "there is no folder $UserProfile; add: -UserProfile C:\Users\NAME" }

# 0. The adapter that leads to the peers, and how it is now: the undo script reads it.
$route = Find-NetRoute -RemoteIPAddress '@FIRST_PEER@' | Select-Object -First 1
$alias = $route.InterfaceAlias
$connection = Get-NetConnectionProfile -InterfaceAlias $alias -ErrorAction SilentlyContinue
$address = Get-NetIPInterface -InterfaceAlias $alias -AddressFamily IPv4
if (-not (Test-Path $stateFile)) {
    New-Item -ItemType Directory -Path $stateFolder -Force | Out-Null
    $category = ''
    if ($null -ne $connection) { $category = [string]$connection.NetworkCategory }
    $before = [pscustomobject]@{
        alias = $alias
        category = $category
        automaticMetric = [string]$address.AutomaticMetric
        metric = $address.InterfaceMetric
    }
    $before | ConvertTo-Json | Set-Content -Path $stateFile -Encoding ascii
}

# 1. This network is yours: Private instead of Public.
if ($null -ne $connection -and $connection.NetworkCategory -eq 'Public') {
    Set-NetConnectionProfile -InterfaceAlias $alias -NetworkCategory Private
}

# 2. The adapter that leads to the peers goes first: WSL follows the order of Windows.
$others = @(Get-NetIPInterface -AddressFamily IPv4 -ConnectionState Connected |
        Where-Object { $_.InterfaceAlias -ne $alias -and $_.InterfaceAlias -notmatch 'Loopback|vEthernet' })
if (@($others | Where-Object { $_.InterfaceMetric -le $address.InterfaceMetric }).Count -gt 0) {
    Set-NetIPInterface -InterfaceAlias $alias -AddressFamily IPv4 -InterfaceMetric 10
}

# 3. The Windows firewall: these peers, and nobody else, reach the port.
if (Get-NetFirewallRule -Name 'potluck' -ErrorAction SilentlyContinue) {
    Set-NetFirewallRule -Name 'potluck' -RemoteAddress $peers
}
else {
    $rule = @{
        Name = 'potluck'; DisplayName = 'Potluck peers'; Direction = 'Inbound'; Action = 'Allow'
        Protocol = 'TCP'; LocalPort = $port; RemoteAddress = $peers; Profile = 'Private'
    }
    New-NetFirewallRule @rule | Out-Null
}

if ($build -ge 22621) {
    # 4. Mirrored networking: WSL gets the addresses of Windows. What else stands in .wslconfig stays.
    $config = Join-Path $UserProfile '.wslconfig'
    Write-Output "changes $config"
    $lines = @()
    if (Test-Path $config) { $lines = @(Get-Content $config) }
    $lines = @($lines | Where-Object { $_ -notmatch '^\s*networkingMode\s*=' })
    if ($lines -notcontains '[wsl2]') { $lines += '[wsl2]' }
    $lines = @($lines | ForEach-Object { $_; if ($_ -eq '[wsl2]') { 'networkingMode=mirrored' } })
    $lines | Set-Content -Path $config -Encoding ascii  # WSL reads no byte order mark

    # 5. The Hyper-V firewall, which guards a mirrored WSL: the same peers, nobody else.
    if (Get-NetFirewallHyperVRule -Name 'potluck' -ErrorAction SilentlyContinue) {
        Remove-NetFirewallHyperVRule -Name 'potluck'
    }
    $rule = @{
        Name = 'potluck'; DisplayName = 'Potluck peers'; Direction = 'Inbound'; Action = 'Allow'
        VMCreatorId = $vmCreator; Protocol = 'TCP'; LocalPorts = $port; RemoteAddresses = $peers
    }
    New-NetFirewallHyperVRule @rule | Out-Null
}
else {
    # 4. This Windows has no mirrored networking: the one port is forwarded into WSL. WSL gets another address with
    #    every start, so this part is needed again then. A machine that only joins can do without: it dials out.
    if ($Guest -eq '') { $Guest = ([string](wsl hostname -I)).Trim().Split(' ')[0] }
    if ($Guest -notmatch '^\d+\.\d+\.\d+\.\d+$') { throw 'WSL does not tell its address; add: -Guest ADDRESS' }
    netsh interface portproxy delete v4tov4 listenport=$port listenaddress=0.0.0.0 | Out-Null
    netsh interface portproxy add v4tov4 listenport=$port listenaddress=0.0.0.0 connectport=$port connectaddress=$Guest
}

if ($build -ge 22621) {
    # 6. WSL takes its new network at the next start. Every account has a WSL of its own.
    if ($isOwner) { wsl --shutdown }
    else { Write-Output "as $owner, in an ordinary PowerShell, type: wsl --shutdown" }
    Write-Output 'done; inside WSL see: potluck doctor'
}
else {
    $own = (Get-NetIPAddress -InterfaceAlias $alias -AddressFamily IPv4 | Select-Object -First 1).IPAddress
    Write-Output "done; to host, type inside WSL: potluck host --port $port --advertise $own"
}
