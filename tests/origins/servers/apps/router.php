<?php
// The application for PHP's own server.
$path = explode("?", $_SERVER["REQUEST_URI"])[0];
if (!str_starts_with($path, "/app/")) {
    if ($path === "/old") {
        header("Location: /index.html", true, 301);
        return true;
    }
    return false;
}

function pieces(int $pause, string ...$pieces): void
{
    foreach ($pieces as $i => $piece) {
        usleep($i > 0 ? $pause : 0);
        echo $piece;
        flush();
    }
}

header("Content-Type: text/plain");
switch (substr($path, 5)) {
    case "chunked": pieces(20000, "one ", "two ", "three"); break;
    case "pause": pieces(3000000, "before ", "after"); break;
    case "late": sleep(3); echo "late"; break;
    case "slow": usleep(100000); echo "slow"; break;
    case "204": header("X-Kind: none", true, 204); break;
    case "headers":
        for ($i = 0; $i < 30; $i++) {
            header("X-Long-$i: " . str_repeat(chr(97 + $i), 1000));
        }
        echo "30 KB of fields";
        break;
    case "cookies": foreach (["a=1; Path=/", "b=1; HttpOnly", "c=2; Max-Age=60"] as $cookie) header("Set-Cookie: $cookie", false); break;
    case "redirect": header("Location: /app/elsewhere?x=1#part", true, 307); break;
    case "teapot": header("X-Kind: odd", true, 418); echo "short and stout"; break;
    case "big": echo str_repeat("0123456789abcdef", 65536); break;
    default:
        $body = file_get_contents("php://input");
        $fields = [];
        foreach (getallheaders() as $name => $value) {
            $fields[] = [$name, $value];
        }
        echo json_encode(["method" => $_SERVER["REQUEST_METHOD"], "target" => $_SERVER["REQUEST_URI"], "fields" => $fields,
            "length" => strlen($body), "sha256" => hash("sha256", $body), "trailers" => []]);
}
return true;
