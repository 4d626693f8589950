"""Django settings of the control plane, made from :class:`controlplane.settings.environment.Environment`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import structlog

from controlplane.settings.admin_site import UNFOLD as UNFOLD
from controlplane.settings.database import database_from_url
from controlplane.settings.environment import load_environment, read_or_make_secret_key
from controlplane.settings.logs import configure_structlog, logging_config
from controlplane.settings.queue import CELERY as CELERY

BASE_DIR = Path(__file__).resolve().parent.parent.parent
SHOAL = load_environment()

DEBUG = SHOAL.debug
SECRET_KEY = SHOAL.secret_key or read_or_make_secret_key(SHOAL.home)
ALLOWED_HOSTS = SHOAL.hosts
CSRF_TRUSTED_ORIGINS = SHOAL.origins

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "controlplane.apps.ControlPlaneConfig",
    "controlplane.accounts.apps.AccountsConfig",
    "controlplane.events.apps.EventsConfig",
    "fleet.apps.FleetConfig",
    "loras.apps.LorasConfig",
]

MIDDLEWARE = [
    "controlplane.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASES = {"default": database_from_url(SHOAL.database_url, SHOAL.home)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CHANNEL_LAYERS = {
    "default": {
        # the pub/sub layer keeps nothing in Redis: a group lives as long as its socket, even for days
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [SHOAL.redis_url], "prefix": f"{SHOAL.redis_prefix}:channels"},
    }
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = SHOAL.home / "staticfiles"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "static"]
# served straight from the apps and wheels, so that no collect step can be forgotten
WHITENOISE_USE_FINDERS = True
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "fleet.finders.UplotFinder",
]

SHOAL_INCOMING_DIR = SHOAL.home / "incoming"
SHOAL_INCOMING_DIR.mkdir(parents=True, exist_ok=True)
SHOAL_UPLOADS_DIR = SHOAL.home / "uploads"
SHOAL_UPLOADS_DIR.mkdir(parents=True, exist_ok=True)
FILE_UPLOAD_HANDLERS = ["loras.uploads.handlers.IncomingUploadHandler"]
FILE_UPLOAD_TEMP_DIR = str(SHOAL_INCOMING_DIR)
DATA_UPLOAD_MAX_NUMBER_FILES = SHOAL.upload_max_files
# one ``paths`` field travels with each file
DATA_UPLOAD_MAX_NUMBER_FIELDS = SHOAL.upload_max_files + 100

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "controlplane.accounts.api.authentication.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["controlplane.accounts.api.permissions.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["controlplane.api.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "controlplane.api.operations.NamedOperations",
    "DEFAULT_PAGINATION_CLASS": "controlplane.api.pagination.NewestFirst",
    "EXCEPTION_HANDLER": "controlplane.api.errors.answer_error",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Shoal control plane",
    "DESCRIPTION": "Upload LoRA adapters, watch their validation, move aliases, see the fleet.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "AdapterKind": "loras.models.adapters.Adapter.Kind",
        "EvaluationKind": "loras.evaluation.rows.EvaluationKind",
        "VersionState": "loras.states.STATE_NAMES",
        "EvaluationState": "loras.evaluation.states.RUN_STATE_NAMES",
        "MemberRole": "controlplane.accounts.models.teams.Membership.Role",
        "FileRole": "loras.models.artifacts.VersionFile.Role",
        "UploadRole": "loras.models.uploads.Upload.Role",
        "UploadState": "loras.models.uploads.Upload.State",
    },
    "SCHEMA_PATH_PREFIX": "/api/v1",
}

X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SHOAL.public_https
if SHOAL.public_https:
    # TLS ends at a proxy that sets this header and drops a client's own
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^api/v1/artifacts/"]
    SECURE_HSTS_SECONDS = SHOAL.hsts_seconds
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True

LOGGING = logging_config(SHOAL.log_level)
configure_structlog()
structlog.get_logger("controlplane").debug("settings.loaded", home=str(SHOAL.home))
