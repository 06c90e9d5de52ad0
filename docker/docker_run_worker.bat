@echo off
rem Join a Potluck host from a container. The container dials out, so it publishes no port.
setlocal enableextensions disabledelayedexpansion
if not defined POTLUCK_IMAGE if defined IMAGE_NAME set "POTLUCK_IMAGE=%IMAGE_NAME%"
if not defined POTLUCK_IMAGE set "POTLUCK_IMAGE=potluck"
set "container=potluck-join"
if "%~1"=="-h" goto help
if "%~1"=="--help" goto help
set "first=%~1"
if "%first:~0,3%"=="p1-" (
  set "POTLUCK_JOIN=%~1"
  shift
)
if "%first%"=="-" (
  set /p "POTLUCK_JOIN=Line p1-...: "
  shift
)
if not defined POTLUCK_JOIN goto misused
if not "%POTLUCK_JOIN:~0,3%"=="p1-" goto misused
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
  >&2 echo   fix: docker start %container%, or for another line: docker rm --force %container%
  exit /b 1
)
if not defined POTLUCK_NAME set "POTLUCK_NAME=%COMPUTERNAME%"
set "gpus="
if defined POTLUCK_GPUS set "gpus=--gpus %POTLUCK_GPUS%"
rem The line goes by the environment: what docker gets as an argument is in the list of processes.
call docker run --detach --name %container% --restart unless-stopped --shm-size 1g --stop-timeout 60 %gpus% ^
  --env POTLUCK_JOIN --env POTLUCK_NAME ^
  --volume potluck-join-home:/home/potluck/.potluck --volume potluck-data:/data ^
  "%POTLUCK_IMAGE%" join%rest%
if errorlevel 1 exit /b 1
echo to watch:  docker logs --follow %container%
echo to leave:  docker stop %container%
exit /b 0
:help
call :usage
exit /b 0
:misused
>&2 call :usage
exit /b 2
:usage
echo usage: docker_run_worker.bat LINE [OPTIONS OF potluck join]
echo   LINE is what potluck host prints, p1-...; - reads it from stdin, and POTLUCK_JOIN may hold it instead
echo   variables: POTLUCK_NAME ^(this machine's name; this computer's name by default^), POTLUCK_IMAGE or IMAGE_NAME ^(potluck by default^),
echo   POTLUCK_GPUS=all ^(hand the GPUs to the container^)
exit /b 0
