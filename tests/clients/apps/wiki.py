"""A day in a MediaWiki that keeps sessions, rendered pages, messages and counters in the server at port 6379.

MediaWiki is the one of Debian, unchanged, its pages in SQLite; MEDIAWIKI names its directory. What is judged is what
people in front of it see.
"""

import html
import http.cookiejar
import json
import os
import re
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

MEDIAWIKI = Path(os.environ["MEDIAWIKI"])
PORT = 8080  # in a network of its own: tests/clients/apps/run
PASSWORD = "a long enough word"
READY_SECONDS_MAX = 20
ATTEMPTS_MAX = 5  # MediaWiki's $wgPasswordAttemptThrottle, within 5 minutes
SETTINGS = """
$wgObjectCaches['redis'] = [ 'class' => 'RedisBagOStuff', 'servers' => [ '127.0.0.1:6379' ] ];
$wgMainCacheType = 'redis';
$wgSessionCacheType = 'redis';
$wgParserCacheType = 'redis';
$wgMessageCacheType = 'redis';
$wgRCFeeds['redis'] = [ 'uri' => 'redis://127.0.0.1:6379/wiki.changes', 'class' => 'RedisPubSubFeedEngine',
  'formatter' => 'JSONRCFeedFormatter' ];
$wgRateLimits['edit']['user'] = [ 3, 60 ];
$wgJobRunRate = 0;
"""


class Browser:
    """A user with cookies of their own."""

    def __init__(self):
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener = urllib.request.build_opener(cookies)

    def open(self, path, fields=None):
        data = urllib.parse.urlencode(fields).encode() if fields is not None else None
        try:
            with self.opener.open(f"http://127.0.0.1:{PORT}{path}", data, timeout=30) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.read().decode()

    def page(self, title):
        return self.open(f"/index.php?{urllib.parse.urlencode({'title': title})}")

    def submit(self, title, **fields):
        """Fills in the form of a page and sends it, with the hidden fields that it came with."""
        form = self.page(title)
        for tag in re.findall(r"<input[^>]*>", form):
            named = dict(re.findall(r'([a-z]+)="([^"]*)"', tag))
            if named.get("type") == "hidden" and "name" in named:
                fields.setdefault(named["name"], html.unescape(named.get("value", "")))
        return self.open(f"/index.php?{urllib.parse.urlencode({'title': title})}", fields)

    def log_in(self, name, password=PASSWORD):
        return self.submit("Special:UserLogin", wpName=name, wpPassword=password)

    def log_out(self):
        return self.api(action="logout", token=self.token())

    def token(self):
        return self.api(action="query", meta="tokens")["query"]["tokens"]["csrftoken"]

    def name(self):
        return self.api(action="query", meta="userinfo")["query"]["userinfo"]["name"]

    def api(self, **fields):
        return json.loads(self.open("/api.php", {"format": "json", **fields}))

    def edit(self, title, text):
        return self.api(action="edit", title=title, text=text, token=self.token())


def redis_cli(*words):
    return subprocess.run(["redis-cli", *words], capture_output=True, text=True, check=True).stdout


class Day(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="keyfast-wiki-")
        cls.addClassCleanup(directory.cleanup)
        cls.environment = {**os.environ, "MW_CONFIG_FILE": f"{directory.name}/LocalSettings.php"}
        cls.maintain(
            "install", "--dbtype", "sqlite", "--dbpath", directory.name, "--dbname", "wiki", "--scriptpath", "",
            "--server", f"http://127.0.0.1:{PORT}", "--confpath", directory.name, "--pass", PASSWORD, "Wiki", "Admin",
            environment=os.environ,
        )
        with open(f"{directory.name}/LocalSettings.php", "a") as settings:
            settings.write(SETTINGS)
        cls.log = open(f"{directory.name}/log", "w+")
        cls.addClassCleanup(cls.log.close)
        web = subprocess.Popen(
            ["php", "-S", f"127.0.0.1:{PORT}", "-t", MEDIAWIKI],
            env={**cls.environment, "PHP_CLI_SERVER_WORKERS": "4"},
            stdout=cls.log, stderr=subprocess.STDOUT, start_new_session=True,
        )
        cls.addClassCleanup(web.wait)
        cls.addClassCleanup(os.killpg, web.pid, 15)
        ready_until = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < ready_until:
            try:
                Browser().page("Main_Page")
                return
            except urllib.error.URLError:
                time.sleep(0.1)
        raise RuntimeError(f"MediaWiki did not answer within {READY_SECONDS_MAX} s")

    @classmethod
    def maintain(cls, script, *arguments, environment=None):
        command = ["php", MEDIAWIKI / "maintenance" / f"{script}.php", *arguments]
        done = subprocess.run(command, env=environment or cls.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command} said:\n{done.stdout}{done.stderr}")

    def someone(self, name):
        self.maintain("createAndPromote", name, PASSWORD)
        browser = Browser()
        browser.log_in(name)
        self.assertEqual(browser.name(), name)
        return browser

    def test_who_registers_is_logged_in_until_she_logs_out(self):
        anna = Browser()
        anna.submit("Special:CreateAccount", wpName="Anna", wpPassword=PASSWORD, retype=PASSWORD)
        self.assertEqual(anna.name(), "Anna")
        self.assertIn("MWSession", redis_cli("--scan"))
        anna.log_out()
        self.assertNotEqual(anna.name(), "Anna")
        anna.log_in("Anna", "another long word")
        self.assertNotEqual(anna.name(), "Anna")
        anna.log_in("Anna")
        self.assertEqual(anna.name(), "Anna")

    def test_sessions_are_nowhere_else(self):
        bert = self.someone("Bert")
        for key in redis_cli("--scan", "--pattern", "*MWSession*").split():
            redis_cli("del", key)
        self.assertNotEqual(bert.name(), "Bert")

    def test_a_page_is_rendered_once_and_anew_when_it_changed(self):
        author, reader = self.someone("Author"), Browser()
        self.assertEqual(author.edit("Lock", "A ''lock'' has one holder.")["edit"]["result"], "Success")
        self.assertIn("A <i>lock</i> has one holder.", reader.page("Lock"))
        self.assertRegex(reader.page("Lock"), r"Saved in parser cache with key wiki:pcache")
        self.assertIn("pcache", redis_cli("--scan"))
        author.edit("Lock", "A ''lock'' has no holder.")
        self.assertIn("A <i>lock</i> has no holder.", reader.page("Lock"))

    def test_words_of_the_site_are_changed_by_its_administrator(self):
        admin, reader = self.someone("Root"), Browser()
        self.maintain("createAndPromote", "--force", "--sysop", "--interface-admin", "Root")
        self.assertNotIn("Welcome to the locksmiths", reader.page("Main_Page"))
        written = admin.edit("MediaWiki:Sitenotice", "Welcome to the locksmiths")
        self.assertEqual(written["edit"]["result"], "Success")
        self.assertIn("Welcome to the locksmiths", reader.page("Main_Page"))

    def test_who_guesses_passwords_has_to_wait(self):
        self.maintain("createAndPromote", "Carla", PASSWORD)
        guesser = Browser()
        said = [guesser.log_in("Carla", f"guess number {number}") for number in range(ATTEMPTS_MAX + 1)]
        self.assertIn("Incorrect username or password", said[0])
        self.assertIn("too many recent login attempts", said[-1])
        self.assertIn("too many recent login attempts", guesser.log_in("Carla"))

    def test_who_writes_too_much_has_to_wait(self):
        dora = self.someone("Dora")
        for number in range(3):
            self.assertEqual(dora.edit(f"Page {number}", "text")["edit"]["result"], "Success")
        self.assertEqual(dora.edit("Page 4", "text")["error"]["code"], "ratelimited")

    def test_changes_are_told_to_who_listens(self):
        emil = self.someone("Emil")
        listener = subprocess.Popen(["redis-cli", "subscribe", "wiki.changes"], stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual([listener.stdout.readline().strip() for _ in range(3)], ["subscribe", "wiki.changes", "1"])
            emil.edit("News", "There is news.")
            change = json.loads([listener.stdout.readline() for _ in range(3)][2])
        finally:
            listener.kill()
            listener.communicate()
        self.assertEqual((change["type"], change["title"], change["user"]), ("new", "News", "Emil"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
