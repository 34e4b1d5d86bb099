# The formula of a tap: src/packaging/release fills in what stands between two @.
class Keyfast < Formula
  desc "Server that speaks the Redis protocol, built around SETNX and locks"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license "MIT"

  # The programs are for Linux. On macOS, Keyfast compiles and has never been run.
  depends_on :linux

  on_intel do
    url "@REPOSITORY@/releases/download/v@VERSION@/keyfast-x86_64-unknown-linux-gnu-v@VERSION@.tgz"
    sha256 "@SHA256_X86_64@"
  end
  on_arm do
    url "@REPOSITORY@/releases/download/v@VERSION@/keyfast-aarch64-unknown-linux-gnu-v@VERSION@.tgz"
    sha256 "@SHA256_AARCH64@"
  end

  def install
    bin.install "keyfast"
    man1.install "documents/keyfast.1"
    bash_completion.install "documents/keyfast.bash" => "keyfast"
    zsh_completion.install "documents/_keyfast"
    fish_completion.install "documents/keyfast.fish"
    doc.install "licences", "benches", "src", *Dir["*.md"], "LICENSE"
    (buildpath/"keyfast.conf").write <<~CONF
      bind 127.0.0.1 -::1
      port 6379
      dir #{var}/lib/keyfast
    CONF
    etc.install "keyfast.conf"
  end

  def post_install
    (var/"lib/keyfast").mkpath
  end

  service do
    run [opt_bin/"keyfast", etc/"keyfast.conf"]
    keep_alive successful_exit: false
    working_dir var/"lib/keyfast"
    log_path var/"log/keyfast.log"
    error_log_path var/"log/keyfast.log"
  end

  test do
    port = free_port
    server = fork { exec bin/"keyfast", "--port", port.to_s, "--save", "" }
    sleep 1
    assert_equal "1", shell_output("#{bin}/keyfast cli -p #{port} setnx lock mine").strip
  ensure
    Process.kill("TERM", server)
    Process.wait(server)
  end
end
