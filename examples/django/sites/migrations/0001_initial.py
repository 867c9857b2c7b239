import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Call',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('leaf', models.TextField()),
                ('key', models.TextField()),
                ('state', models.TextField()),
                ('reason', models.TextField(null=True)),
                ('attempts', models.IntegerField()),
                ('last_status', models.IntegerField(null=True)),
                ('last_error', models.TextField(null=True)),
            ],
            options={
                'db_table': '"leafhopper"."call"',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='Outbox',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('leaf', models.TextField()),
                ('key', models.TextField()),
                ('method', models.TextField(default='POST')),
                ('path', models.TextField()),
                ('body', models.JSONField(null=True)),
                ('batch_id', models.UUIDField(null=True)),
                ('run_when', models.TextField(default='ready')),
            ],
            options={
                'db_table': '"leafhopper"."outbox"',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='Result',
            fields=[
                ('seq', models.BigIntegerField(primary_key=True, serialize=False)),
                ('call_id', models.BigIntegerField(null=True)),
                ('leaf', models.TextField()),
                ('key', models.TextField()),
                ('status', models.IntegerField()),
                ('body', models.JSONField(null=True)),
                ('confirmed_at', models.DateTimeField()),
                ('undone_at', models.DateTimeField(null=True)),
            ],
            options={
                'db_table': '"leafhopper"."result"',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='Account',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('credit', models.PositiveIntegerField()),
            ],
            options={
                'db_table': 'account',
            },
        ),
        migrations.CreateModel(
            name='Reader',
            fields=[
                ('name', models.TextField(primary_key=True, serialize=False)),
                ('seq', models.BigIntegerField(default=0)),
            ],
            options={
                'db_table': 'reader',
            },
        ),
        migrations.CreateModel(
            name='Site',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField()),
                ('status', models.TextField(default='requested')),
                ('batch_id', models.UUIDField(null=True)),
                ('remote_id', models.TextField(null=True)),
                ('call', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='sites.call')),
            ],
            options={
                'db_table': 'site',
            },
        ),
    ]
