@echo off
rem Start a Potluck host in a container that publishes one port.
setlocal enableextensions disabledelayedexpansion
if not defined POTLUCK_IMAGE if defined IMAGE_NAME set "POTLUCK_IMAGE=%IMAGE_NAME%"
if not defined POTLUCK_IMAGE set "POTLUCK_IMAGE=potluck"
set "container=potluck-host"
if "%~1"=="" goto misused
if "%~1"=="-h" goto help
if "%~1"=="--help" goto help
set "address=%~1"
set "wrong="
for /f "delims=0123456789." %%c in ("%address%") do set "wrong=yes"
if defined wrong goto misused
shift
set "rest="
:rest
if "%~1"=="" goto run
set "rest=%rest% %1"
shift
goto rest
:run
rem "call", because docker may be a .bat itself.
call docker --version >nul 2>nul
if errorlevel 1 (
  >&2 echo error: docker is not installed
  >&2 echo   fix: install Docker Desktop: https://docs.docker.com/desktop/setup/install/windows-install
  exit /b 1
)
call docker image inspect "%POTLUCK_IMAGE%" >nul 2>nul
if errorlevel 1 (
  >&2 echo error: there is no image %POTLUCK_IMAGE%, or Docker Desktop does not run
  >&2 echo   fix: docker build --file docker/Dockerfile --tag %POTLUCK_IMAGE% .
  exit /b 1
)
call docker container inspect %container% >nul 2>nul
if not errorlevel 1 (
  >&2 echo error: the container %container% exists already
  >&2 echo   fix: docker start %container%, or for other options: docker rm --force %container%
  exit /b 1
)
if not defined POTLUCK_NAME set "POTLUCK_NAME=%COMPUTERNAME%"
set "gpus="
if defined POTLUCK_GPUS set "gpus=--gpus %POTLUCK_GPUS%"
call docker run --detach --name %container% --restart unless-stopped --shm-size 1g --stop-timeout 60 %gpus% ^
  --publish 29500:29500 --env POTLUCK_NAME ^
  --volume potluck-host-home:/home/potluck/.potluck --volume potluck-runs:/runs --volume potluck-data:/data ^
  "%POTLUCK_IMAGE%" host --no-mdns --advertise %address%%rest%
if errorlevel 1 exit /b 1
echo the line for other machines: docker logs %container%
echo to train:                    docker exec --interactive --tty %container% potluck train
exit /b 0
:help
call :usage
exit /b 0
:misused
>&2 call :usage
exit /b 2
:usage
echo usage: docker_run_master.bat ADDRESS [OPTIONS OF potluck host]
echo   ADDRESS is this computer's address as the other computers dial it: docker_run_master.bat 192.168.1.10
echo   ^(the IPv4 address of the cable or Wi-Fi in the output of ipconfig^)
echo   variables: POTLUCK_NAME ^(this machine's name; this computer's name by default^), POTLUCK_IMAGE or IMAGE_NAME ^(potluck by default^),
echo   POTLUCK_GPUS=all ^(hand the GPUs to the container^)
exit /b 0
