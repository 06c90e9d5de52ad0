@echo off
rem Takes this Windows from nothing to Ubuntu in WSL2 with Potluck joined to a host. Every step asks first.
rem   potluck-setup.bat         set up and join; start it again after a restart, it goes on where it was
rem   potluck-setup.bat /undo   take back what it did, step by step, asking first
setlocal EnableExtensions DisableDelayedExpansion
set "DISTRO=Ubuntu-24.04"
set "NOTES=%LOCALAPPDATA%\potluck-setup"
if "%~1"=="" goto setup
if /i "%~1"=="/undo" goto undo
if "%~1"=="/?" goto usage
if /i "%~1"=="/help" goto usage
>&2 echo error: potluck-setup.bat knows no %1
>&2 echo   fix: potluck-setup.bat, or potluck-setup.bat /undo
exit /b 2

:usage
echo potluck-setup.bat         install WSL2, Ubuntu and Potluck, and join a host; asks before every step
echo potluck-setup.bat /undo   take that back; asks before every step
exit /b 0

:setup
echo Potluck trains one PyTorch model on all of your machines. On Windows it runs inside Ubuntu, in WSL2.
echo Nothing is changed before you have answered y. To take everything back: potluck-setup.bat /undo
echo.

rem Step 1: WSL2 itself.
call wsl --status >nul 2>nul
if %errorlevel% equ 0 goto ubuntu
echo Step 1 of 4: WSL2 is not installed. It is a part of Windows that runs Linux.
echo   This types: wsl --install --no-distribution
echo   Windows asks for an administrator, downloads about 200 MB, and wants a restart.
call :ask "Install WSL2?"
if %errorlevel% neq 0 goto stopped
call wsl --install --no-distribution
if %errorlevel% neq 0 (
  >&2 echo error: Windows could not install WSL2
  >&2 echo   fix: Windows must be version 2004 or newer ^(type: winver^), and virtualization on in the BIOS
  exit /b 1
)
call :note wsl
call wsl --status >nul 2>nul
if %errorlevel% equ 0 goto ubuntu
echo Restart Windows, then start potluck-setup.bat again: it goes on from here.
exit /b 3

:ubuntu
rem Step 2: a Linux. Whether it is there is asked by running something in it: the list of wsl has its own encoding.
call wsl -d %DISTRO% -u root -e true >nul 2>nul
if %errorlevel% equ 0 goto version
echo Step 2 of 4: %DISTRO% is not installed.
echo   This types: wsl --install -d %DISTRO%
echo   It downloads about 500 MB and asks you for a new user name and a password.
echo   When you then see a line that ends in $, type: exit
call :ask "Install %DISTRO%?"
if %errorlevel% neq 0 goto stopped
call wsl --install -d %DISTRO%
call wsl -d %DISTRO% -u root -e true >nul 2>nul
if %errorlevel% neq 0 (
  >&2 echo error: %DISTRO% does not start
  >&2 echo   fix: restart Windows and start potluck-setup.bat again; if it stays so: wsl --update
  exit /b 1
)
call :note distribution

:version
call wsl -d %DISTRO% -u root -e sh -c "uname -r | grep -qi -e standard -e wsl2"
if %errorlevel% equ 0 goto packages
echo %DISTRO% runs in WSL1, which is no Linux kernel: Potluck needs WSL2.
echo   This types: wsl --set-version %DISTRO% 2
echo   It takes minutes. Files in %DISTRO% stay.
call :ask "Turn it into WSL2?"
if %errorlevel% neq 0 goto stopped
call wsl --set-version %DISTRO% 2
if %errorlevel% neq 0 (
  >&2 echo error: Windows could not turn %DISTRO% into WSL2
  >&2 echo   fix: what it said above; often: wsl --install --no-distribution as administrator, then restart
  exit /b 1
)
call :note version

:packages
rem Step 3: what Ubuntu lacks.
call wsl -d %DISTRO% -u root -e python3 -c "import ensurepip" >nul 2>nul
if %errorlevel% equ 0 goto line
echo Step 3 of 4: Ubuntu needs its package python3-venv.
echo   This types, as Ubuntu's root: apt-get update, apt-get install --yes python3-venv
call :ask "Install python3-venv?"
if %errorlevel% neq 0 goto stopped
call wsl -d %DISTRO% -u root -e apt-get update
call wsl -d %DISTRO% -u root -e apt-get install --yes python3-venv
if %errorlevel% neq 0 (
  >&2 echo error: Ubuntu could not install python3-venv
  >&2 echo   fix: see that Ubuntu reaches the internet: wsl -d %DISTRO% -e ping -c 1 archive.ubuntu.com
  exit /b 1
)
call :note packages

:line
rem Step 4: Potluck. The line goes by the environment, so that neither cmd nor a shell reads it as a command.
echo Step 4 of 4: on the host, potluck host prints lines for a machine without Potluck; each begins with uv or python3.
echo   Copy one of them, paste it here (right mouse button) and press Enter. Enter alone stops.
set "POTLUCK_LINE="
set /p POTLUCK_LINE=Line: 
if not defined POTLUCK_LINE goto stopped
set "FIRST=%POTLUCK_LINE:~0,1%"
if not defined FIRST goto stopped
set "POTLUCK_SETUP=%~f0"
set "WSLENV=POTLUCK_STEP:POTLUCK_LINE:POTLUCK_SETUP/p"
call :linux show
if %errorlevel% neq 0 goto line
call :ask "Install Potluck in Ubuntu and join this host?"
if %errorlevel% neq 0 goto stopped
call :note potluck
call :linux install
if %errorlevel% neq 0 goto broken
call :linux doctor
echo.
echo This machine now joins. Leave this window open while it trains: Windows ends WSL with its last window.
echo Ctrl-C leaves after the current step. To join again later: wsl -d %DISTRO% -e bash -lc "~/potluck-venv/bin/potluck join"
call :linux join
exit /b %errorlevel%

:broken
>&2 echo error: the step in Ubuntu failed; what it printed above says why
>&2 echo   fix: mend that, then start potluck-setup.bat again; docs/windows.md has more
exit /b 1

:stopped
echo Stopped. What has been done before stays; potluck-setup.bat goes on from here, potluck-setup.bat /undo takes it back.
exit /b 5

:undo
if not exist "%NOTES%" (
  echo potluck-setup.bat has done nothing here: there is nothing to take back.
  exit /b 0
)
set "POTLUCK_SETUP=%~f0"
set "WSLENV=POTLUCK_STEP:POTLUCK_SETUP/p"
set "KEPT="
if exist "%NOTES%\potluck" call :undo_potluck
if exist "%NOTES%\packages" call :undo_packages
if exist "%NOTES%\version" call :undo_version
if exist "%NOTES%\distribution" call :undo_distribution
if exist "%NOTES%\wsl" call :undo_wsl
if defined KEPT (
  echo Kept:%KEPT%. potluck-setup.bat /undo asks again.
  exit /b 5
)
rmdir "%NOTES%" >nul 2>nul
echo Everything that potluck-setup.bat did is taken back.
exit /b 0

:undo_potluck
echo Potluck in Ubuntu: leaves its host, removes ~/potluck-venv and ~/.potluck. Runs and data stay.
call :ask "Remove Potluck?"
if %errorlevel% neq 0 goto keep_potluck
call :linux undo
if %errorlevel% neq 0 goto keep_potluck
del "%NOTES%\potluck"
exit /b 0
:keep_potluck
set "KEPT=%KEPT% Potluck"
exit /b 0

:undo_packages
echo Ubuntu's package python3-venv.
call :ask "Remove python3-venv?"
if %errorlevel% neq 0 goto keep_packages
call wsl -d %DISTRO% -u root -e apt-get remove --yes python3-venv
if %errorlevel% neq 0 goto keep_packages
del "%NOTES%\packages"
exit /b 0
:keep_packages
set "KEPT=%KEPT% python3-venv"
exit /b 0

:undo_version
echo %DISTRO% was in WSL1 before. This types: wsl --set-version %DISTRO% 1
call :ask "Turn it back into WSL1?"
if %errorlevel% neq 0 goto keep_version
call wsl --set-version %DISTRO% 1
if %errorlevel% neq 0 goto keep_version
del "%NOTES%\version"
exit /b 0
:keep_version
set "KEPT=%KEPT% WSL2"
exit /b 0

:undo_distribution
echo %DISTRO% with ALL FILES in it, also those that are not Potluck's. This types: wsl --unregister %DISTRO%
call :ask "Remove %DISTRO% and all of its files?"
if %errorlevel% neq 0 goto keep_distribution
call wsl --unregister %DISTRO%
if %errorlevel% neq 0 goto keep_distribution
del "%NOTES%\distribution"
exit /b 0
:keep_distribution
set "KEPT=%KEPT% %DISTRO%"
exit /b 0

:undo_wsl
echo WSL2 itself. Other distributions and Docker Desktop need it, too. This types: wsl --uninstall
call :ask "Remove WSL2?"
if %errorlevel% neq 0 goto keep_wsl
call wsl --uninstall
if %errorlevel% neq 0 goto keep_wsl
del "%NOTES%\wsl"
exit /b 0
:keep_wsl
set "KEPT=%KEPT% WSL2-itself"
exit /b 0

:ask
rem 0 for y or yes, 1 for everything else: Enter alone is no.
set "ANSWER="
set /p ANSWER=%~1 [y/N] 
if not defined ANSWER exit /b 1
set "ANSWER=%ANSWER:"=%"
if /i "%ANSWER%"=="y" exit /b 0
if /i "%ANSWER%"=="yes" exit /b 0
exit /b 1

:note
rem What was done here, so that /undo takes back nothing else.
if not exist "%NOTES%" mkdir "%NOTES%"
>"%NOTES%\%1" echo done by potluck-setup.bat
exit /b 0

:linux
rem Runs the end of this file inside Ubuntu. An empty IFS and set -f keep a path with spaces in one piece.
set "POTLUCK_STEP=%1"
call wsl -d %DISTRO% --cd ~ -e bash -c "IFS=; set -f; exec bash <(sed -e '1,/[L]INUX PART/d' -e 's/\r$//' $POTLUCK_SETUP)"
exit /b %errorlevel%

------------------------------ LINUX PART ------------------------------
# What potluck-setup.bat does inside Ubuntu. The pasted line is read for three words, and is never run itself.
set -euo pipefail
venv=$HOME/potluck-venv
line=${POTLUCK_LINE:-}
unset POTLUCK_LINE # it holds the token, and programs that are started here would inherit it
wheel=$(grep -oE "http://[0-9.]+:[0-9]+/[A-Za-z0-9_-]+/potluck-[A-Za-z0-9_.+-]+\.whl#sha256=[0-9a-f]{64}" <<<"$line" || true)
torch=$(grep -oE "torch==[0-9]+\.[0-9]+\.[0-9]+" <<<"$line" || true)
invitation=$(grep -oE "potluck join p1-[A-Za-z0-9._-]+" <<<"$line" | grep -oE "p1-.*" || true)

case $POTLUCK_STEP in
show)
  if [ -z "$invitation" ] || [ -z "$wheel" ]; then
    missing="http://...whl"
    [ -z "$wheel" ] || missing="potluck join p1-..."
    echo "error: this is not the whole line that installs and joins: it has no $missing" >&2
    echo "  fix: copy the line below 'On a machine without Potluck' on the host; it begins with uv or python3" >&2
    exit 1
  fi
  echo "  Potluck comes from: ${wheel%%#*}"
  echo "  checked against:    ${wheel##*#}"
  echo "  with:               ${torch:-torch, the newest}, from PyTorch's index; the CPU's build is 200 MB, a GPU's several GB"
  echo "  into:               $venv"
  ;;
install)
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
  # uv chooses the build of torch that fits the card which Windows shows to Ubuntu.
  "$venv/bin/pip" install --quiet uv
  "$venv/bin/uv" pip install --python "$venv/bin/python" --torch-backend auto "$wheel" ${torch:+"$torch"}
  ;;
doctor)
  "$venv/bin/potluck" doctor || true
  ;;
join)
  export POTLUCK_JOIN="$invitation" # not as an argument, which the list of processes shows
  exec "$venv/bin/potluck" join
  ;;
undo)
  if [ -x "$venv/bin/potluck" ]; then
    "$venv/bin/potluck" leave || echo "the host was not told; there: potluck leave $(hostname)"
  fi
  rm -rf "$venv" "$HOME/.potluck"
  ;;
esac
