import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;

/** Runs statements at each server: prints columns, types and rows, numbers of changed rows, or an SQLSTATE. Arguments: a file of statements, and URLs. */
public class Script {
    public static void main(String[] arguments) throws Exception {
        String[] statements = Files.readString(Path.of(arguments[0])).split("\0");
        for (int n = 1; n < arguments.length; n++) {
            System.out.println("#####");
            try (Connection connection = DriverManager.getConnection(arguments[n])) {
                for (String sql : statements) {
                    System.out.println("=====");
                    System.out.println(shown(connection, sql));
                }
            }
        }
    }

    private static String shown(Connection connection, String sql) {
        try (PreparedStatement statement = connection.prepareStatement(sql.replace("?", "??"))) {
            if (!statement.execute()) {
                return "changed " + statement.getUpdateCount();
            }
            try (ResultSet rows = statement.getResultSet()) {
                return rows(rows);
            }
        } catch (SQLException error) {
            return "error " + error.getSQLState();
        }
    }

    private static String rows(ResultSet rows) throws SQLException {
        ResultSetMetaData columns = rows.getMetaData();
        StringBuilder text = new StringBuilder();
        for (int c = 1; c <= columns.getColumnCount(); c++) {
            text.append(columns.getColumnLabel(c)).append(' ').append(columns.getColumnTypeName(c)).append('|');
        }
        while (rows.next()) {
            text.append('\n');
            for (int c = 1; c <= columns.getColumnCount(); c++) {
                text.append(rows.getString(c)).append('|');
            }
        }
        return text.toString();
    }
}
