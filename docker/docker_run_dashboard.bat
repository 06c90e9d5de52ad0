@echo off
rem Show the runs of docker_run_master.bat's host in a browser.
setlocal enableextensions disabledelayedexpansion
if not defined POTLUCK_IMAGE if defined IMAGE_NAME set "POTLUCK_IMAGE=%IMAGE_NAME%"
if not defined POTLUCK_IMAGE set "POTLUCK_IMAGE=potluck"
set "container=potluck-dashboard"
if "%~1"=="-h" goto help
if "%~1"=="--help" goto help
if not "%~2"=="" goto misused
set "address=%~1"
if not defined address set "address=127.0.0.1"
set "wrong="
for /f "delims=0123456789." %%c in ("%address%") do set "wrong=yes"
if defined wrong goto misused
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
  >&2 echo   fix: docker start %container%, or for another address: docker rm --force %container%
  exit /b 1
)
call docker run --detach --name %container% --restart unless-stopped --no-healthcheck ^
  --publish %address%:8501:8501 --env POTLUCK_DASHBOARD_PASSWORD ^
  --volume potluck-host-home:/home/potluck/.potluck:ro --volume potluck-runs:/runs:ro ^
  "%POTLUCK_IMAGE%" dashboard --address 0.0.0.0
if errorlevel 1 exit /b 1
echo the page:     http://%address%:8501
echo its password: docker logs %container%
exit /b 0
:help
call :usage
exit /b 0
:misused
>&2 call :usage
exit /b 2
:usage
echo usage: docker_run_dashboard.bat [ADDRESS]
echo   ADDRESS is where this computer shows the page: 127.0.0.1 by default, for this computer only;
echo   its own address, or 0.0.0.0, lets other computers look, with the password
echo   variables: POTLUCK_DASHBOARD_PASSWORD ^(the host's password by default^), POTLUCK_IMAGE or IMAGE_NAME ^(potluck by default^)
exit /b 0
