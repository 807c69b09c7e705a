import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.regex.*;

/** Reads lines of "pattern TAB string" in hexadecimal UTF-8; writes all matches of each, "begin-end,..." of all groups in code points, or E. */
public class Matches {
    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split("\t", -1);
            out.println(answer(text(parts[0]), text(parts[1])));
        }
        out.flush();
    }

    static String text(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static String answer(String pattern, String s) {
        try {
            Matcher m = Pattern.compile(pattern).matcher(s);
            List<String> matches = new ArrayList<>();
            while (m.find()) {
                // Between the halves of a character is no place of a string here.
                if (m.start() > 0 && m.start() < s.length() && Character.isLowSurrogate(s.charAt(m.start()))) {
                    if (m.end() > m.start()) return "halves";
                    continue;
                }
                List<String> groups = new ArrayList<>();
                for (int g = 0; g <= m.groupCount(); g++)
                    groups.add(m.start(g) < 0 ? "-" : s.codePointCount(0, m.start(g)) + "-" + s.codePointCount(0, m.end(g)));
                matches.add(String.join(",", groups));
            }
            return String.join(" ", matches);
        } catch (PatternSyntaxException | StackOverflowError e) {
            return "E";
        }
    }
}
