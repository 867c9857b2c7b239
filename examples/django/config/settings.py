import os
from urllib.parse import unquote, urlsplit

url = urlsplit(os.environ["DATABASE_URL"])

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": url.hostname,
        "PORT": url.port or 5432,
        "NAME": unquote(url.path[1:]),
        "USER": unquote(url.username),
        "PASSWORD": unquote(url.password or ""),
    }
}
# In production it comes from the environment, too.
SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["sites"]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
