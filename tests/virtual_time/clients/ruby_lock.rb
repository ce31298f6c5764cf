# SET NX PX over a socket of Ruby's, with a thread for each request.
require "json"
require "securerandom"
require "socket"
require "timeout"

RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
Refused = Class.new(StandardError)

class Client
  def ask(*words)
    unless @link
      @link = TCPSocket.new(*@at)
      @link.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    end
    Timeout.timeout(1) do
      @link.write("*#{words.size}\r\n" + words.map { |word| "$#{word.bytesize}\r\n#{word}\r\n" }.join)
      (@link.gets or raise EOFError).chomp
    end
  rescue StandardError
    @link&.close
    @link = nil
    raise
  end

  def perform(request)
    lock = "harness:#{request["lock"]}"
    case request["op"]
    when "open"
      @at, @lease, @held = request["endpoints"][0].split(":"), request["lease_ms"].to_s, {}
    when "acquire"
      value, ends = SecureRandom.hex(8), Process.clock_gettime(Process::CLOCK_MONOTONIC) + request["wait_ms"] / 1000.0
      until ask("SET", lock, value, "NX", "PX", @lease) == "+OK"
        raise Refused, "timeout" if Process.clock_gettime(Process::CLOCK_MONOTONIC) >= ends
        sleep 0.01 + rand / 50
      end
      @held[lock] = value
      return { owner: value }
    when "release"
      raise Refused, "not held" unless ask("EVAL", RELEASE, "1", lock, @held.delete(lock) || "") == ":1"
    end
    {}
  end
end

$stdout.sync = true
clients, says = Hash.new { |all, number| all[number] = Client.new }, Mutex.new
$stdin.each_line do |line|
  request = JSON.parse(line)
  Thread.new(request, clients[request["client"]]) do |asked, client|
    answer = begin
      { type: "ok", **client.perform(asked) }
    rescue Refused => error
      { type: "fail", error: error.message }
    rescue StandardError => error
      { type: "info", error: error.message }
    end
    says.synchronize { puts JSON.generate({ id: asked["id"], **answer }) }
  end
end
