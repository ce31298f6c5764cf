import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * @ABOUT@
 *
 * <p>@HINT@
 */
class @CLASS@ {
    @TempDir
    Path results;

    @Test
    void @NAME@() throws Exception {
        List<String> command = new ArrayList<>(List.of(System.getenv().getOrDefault("HARNESS", "harness")));
        command.addAll(List.of(@WORDS@));
        command.add("--client=" + System.getenv().getOrDefault("LOCK_CLIENT", @CLIENT@));
        command.addAll(List.of("--results", results.toString()));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String text = new String(process.getInputStream().readAllBytes());
        int code = process.waitFor();
        assertTrue(code == 0 || code == 3, text);
    }
}
