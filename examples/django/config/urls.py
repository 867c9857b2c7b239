from django.urls import path

from sites import views

urlpatterns = [path("sites/", views.sites)]
