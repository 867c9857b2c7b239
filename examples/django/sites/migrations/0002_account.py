from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("sites", "0001_initial")]

    operations = [
        migrations.RunSQL("INSERT INTO account (id, credit) VALUES (1, 100)", "DELETE FROM account WHERE id = 1"),
    ]
