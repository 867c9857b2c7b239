import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;

/**
 * The app with JDBC; follow reacts by LISTEN.
 *
 * <pre>
 * java -cp /usr/share/java/postgresql.jar App.java create NAME           one call
 * java -cp /usr/share/java/postgresql.jar App.java launch NAME AMOUNT    a batch: site and charge, or neither
 * java -cp /usr/share/java/postgresql.jar App.java follow                marks sites as live or failed, until Ctrl-C
 * </pre>
 */
public final class App {
    private static final String CHECK_VIOLATION = "23514";

    public static void main(String[] args) throws SQLException {
        try (Connection db = connect(URI.create(System.getenv("DATABASE_URL")))) {
            switch (args.length == 0 ? "" : args[0]) {
                case "create" -> create(db, args[1]);
                case "launch" -> launch(db, args[1], Long.parseLong(args[2]));
                case "follow" -> follow(db);
                default -> throw new IllegalArgumentException("create NAME | launch NAME AMOUNT | follow");
            }
        } catch (SQLException error) {
            if (!CHECK_VIOLATION.equals(error.getSQLState())) {
                throw error;
            }
            System.err.println("nothing is requested: " + error.getMessage());
            System.exit(1);
        }
    }

    private static void create(Connection db, String name) throws SQLException {
        db.setAutoCommit(false);
        long site = newSite(db, name, null);
        db.commit();
        System.out.println("site " + site + " is requested");
    }

    private static void launch(Connection db, String name, long amount) throws SQLException {
        UUID batch = UUID.randomUUID();
        db.setAutoCommit(false);
        long site = newSite(db, name, batch);
        String key = "site:" + site + ":";
        call(db, "pay", key + "charge", "/charges", "{\"amount\": " + amount + "}", batch, "ready");
        call(db, "mail", key + "welcome", "/messages", "{\"say\": \"welcome\"}", batch, "batch_succeeded");
        call(db, "mail", key + "sorry", "/messages", "{\"say\": \"sorry\"}", batch, "batch_failed");
        db.commit();
        System.out.println("site " + site + " is requested, in batch " + batch);
    }

    /** The site, the call that makes it, and what the account pays for it: all of it, or nothing. */
    private static long newSite(Connection db, String name, UUID batch) throws SQLException {
        long site = number(db, "INSERT INTO site (name, batch_id) VALUES (?, ?) RETURNING id", name, batch);
        // Made by the database, so that it needs no JSON library here.
        String body = text(db, "SELECT json_build_object('name', ?::text)", name);
        long call = call(db, "hosting", "site:" + site, "/sites", body, batch, "ready");
        number(db, "UPDATE site SET call_id = ? WHERE id = ? RETURNING id", call, site);
        // Without credit this fails, and no call is made: a connection that is closed commits nothing.
        number(db, "UPDATE account SET credit = credit - 1 WHERE id = ? RETURNING id", 1);
        return site;
    }

    private static long call(Connection db, String leaf, String key, String path, String body, UUID batch, String runWhen)
            throws SQLException {
        return number(db, "INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, run_when)"
                + " VALUES (?, ?, ?, ?::jsonb, ?, ?) RETURNING id", leaf, key, path, body, batch, runWhen);
    }

    private static void follow(Connection db) throws SQLException {
        for (String channel : new String[] {"leafhopper_result", "leafhopper_call"}) {
            try (PreparedStatement listen = db.prepareStatement("LISTEN " + channel)) {
                listen.execute();
            }
        }
        while (true) {
            // First, for what happened while nobody listened.
            try (PreparedStatement update = db.prepareStatement("""
                    UPDATE site SET status = o.status, remote_id = o.remote_id
                      FROM site_outcome o WHERE o.site_id = site.id AND o.status IS NOT NULL
                    RETURNING site.name, site.status""");
                    ResultSet changed = update.executeQuery()) {
                while (changed.next()) {
                    System.out.println(changed.getString(1) + " is " + changed.getString(2));
                }
            }
            // A notification is a hint: it says that there is something, and may be lost with a connection.
            db.unwrap(PGConnection.class).getNotifications(30_000);
        }
    }

    private static long number(Connection db, String sql, Object... values) throws SQLException {
        return Long.parseLong(text(db, sql, values));
    }

    /** The first value of the only row. */
    private static String text(Connection db, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                if (values[i] == null) {
                    statement.setNull(i + 1, Types.OTHER);
                } else {
                    statement.setObject(i + 1, values[i]);
                }
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getString(1);
            }
        }
    }

    /** JDBC has its own words for what others know as postgres://USER:PASSWORD@HOST/DATABASE. */
    private static Connection connect(URI url) throws SQLException {
        String[] user = (url.getUserInfo() + ":").split(":", 3);
        Properties properties = new Properties();
        properties.setProperty("user", user[0]);
        properties.setProperty("password", user[1]);
        int port = url.getPort() < 0 ? 5432 : url.getPort();
        return DriverManager.getConnection("jdbc:postgresql://" + url.getHost() + ":" + port + url.getPath(), properties);
    }
}
