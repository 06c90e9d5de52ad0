# Whose WSL it is: of who sits at the screen, not of the administrator who was asked for a password.
$owner = [string](Get-CimInstance -ClassName Win32_ComputerSystem).UserName
$isOwner = $owner -eq '' -or $owner -eq [Security.Principal.WindowsIdentity]::GetCurrent().Name
if ($UserProfile -eq '') {
    $UserProfile = $env:USERPROFILE
    if (-not $isOwner) {
        $account = New-Object Security.Principal.NTAccount($owner)
        $sid = $account.Translate([Security.Principal.SecurityIdentifier]).Value
        $UserProfile = (Get-CimInstance -ClassName Win32_UserProfile -Filter "SID = '$sid'").LocalPath
    }
}
