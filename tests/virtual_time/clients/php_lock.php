<?php
// SET NX PX over a stream of PHP's, one request at a time.
const RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
class Refused extends Exception {}

class Client {
    private $link = null, $at, $lease, $held = [];

    private function ask(string ...$words): string {
        if (!$this->link) {
            $this->link = @stream_socket_client("tcp://$this->at", $code, $why, 1) ?: null;
            if (!$this->link) throw new RuntimeException("no connection: $why");
            stream_set_timeout($this->link, 1);
        }
        $text = "*" . count($words) . "\r\n";
        foreach ($words as $word) $text .= "$" . strlen($word) . "\r\n$word\r\n";
        $line = @fwrite($this->link, $text) === strlen($text) ? fgets($this->link) : false;
        if ($line === false) {
            fclose($this->link);
            $this->link = null;
            throw new RuntimeException("no answer");
        }
        return rtrim($line);
    }

    public function perform(array $request): array {
        $lock = "harness:" . ($request["lock"] ?? "");
        switch ($request["op"]) {
            case "open":
                [$this->at, $this->lease] = [$request["endpoints"][0], (string) $request["lease_ms"]];
                break;
            case "acquire":
                [$value, $ends] = [bin2hex(random_bytes(8)), hrtime(true) + $request["wait_ms"] * 1000000];
                while ($this->ask("SET", $lock, $value, "NX", "PX", $this->lease) !== "+OK") {
                    if (hrtime(true) >= $ends) throw new Refused("timeout");
                    usleep(random_int(10000, 30000));
                }
                $this->held[$lock] = $value;
                return ["owner" => $value];
            case "release":
                $value = $this->held[$lock] ?? "";
                unset($this->held[$lock]);
                if ($this->ask("EVAL", RELEASE, "1", $lock, $value) !== ":1") throw new Refused("not held");
        }
        return [];
    }
}

$clients = [];
while (($line = fgets(STDIN)) !== false) {
    $request = json_decode($line, true);
    $client = $clients[$request["client"]] ??= new Client();
    try {
        $answer = ["type" => "ok"] + $client->perform($request);
    } catch (Refused $error) {
        $answer = ["type" => "fail", "error" => $error->getMessage()];
    } catch (Exception $error) {
        $answer = ["type" => "info", "error" => $error->getMessage()];
    }
    echo json_encode(["id" => $request["id"]] + $answer), "\n";
}
