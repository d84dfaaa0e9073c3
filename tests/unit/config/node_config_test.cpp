#include "config/node_config.hpp"

#include <algorithm>

#include "tests/unit/config/config_support.hpp"

using namespace cenote;
using namespace cenote::config;
using namespace cenote::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t gib = 1 << 30;

config_value shown(const node_config& config, std::string_view key) {
  const auto values = effective(config);
  const auto found = std::ranges::find(values, key, &config_value::key);
  BOOST_REQUIRE_MESSAGE(found != values.end(), key);
  return *found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loading)

BOOST_AUTO_TEST_CASE(a_node_needs_no_configuration) {
  const auto config = default_config();
  BOOST_TEST(config.node.socket == "");
  BOOST_TEST(config.node.threads == 0U);
  BOOST_TEST((config.node.drain_timeout == 5s));
  BOOST_TEST((config.node.flush_timeout == 20s));
  BOOST_TEST((flush_time(config) == 0s));  // no tier below could take anything
  BOOST_TEST(config.node.max_sessions == 256U);
  BOOST_TEST(config.dram.capacity == gib);
  BOOST_TEST(config.dram.policy == "auto");
  BOOST_TEST(config.dram.high_water == 0.97);
  BOOST_TEST(config.dram.low_water == 0.94);
  BOOST_TEST(config.dram.populate);
  BOOST_TEST((config.dram.huge_pages == huge_pages::automatic));
  BOOST_TEST(!config.dram.numa_node.has_value());
  BOOST_TEST((config.dram.integrity == integrity::leave));
  BOOST_TEST(config.dram.slab_size == 0U);
  BOOST_TEST(config.session.max_pins == 65536U);
  BOOST_TEST(config.session.max_grants == 1024U);
  BOOST_TEST((config.session.reserve_timeout == 30s));
  BOOST_TEST(config.auth.allow_uids.empty());
  BOOST_TEST(!config.auth.admin_gid.has_value());
  BOOST_TEST(config.groups.empty());
  BOOST_TEST(config.log.level == "info");
  BOOST_TEST((config.log.format == log_format::automatic));
}

BOOST_AUTO_TEST_CASE(every_key_of_a_file_reaches_its_member) {
  const auto config = good(load_text(R"(
[node]
socket = "/tmp/s"
runtime_dir = "/tmp/r"
threads = 3
drain_timeout = "1.5s"
max_sessions = 7
[dram]
capacity = "64MiB"
policy = "lru"
high_water = 0.9
low_water = 0.8
populate = false
huge_pages = "off"
numa_node = 1
integrity = "commit"
slab_size = 1048576
[session]
max_pins = 11
max_grants = 12
reserve_timeout = "2m"
[auth]
allow_uids = [1000, 4294967294]
allow_gids = [5]
admin_gid = 6
[limits]
reserve_share = 0.125
keep_share = 0.75
pin_share = 0.625
group_quota = "16MiB"
open_groups = true
user_quota = "8MiB"
user_keep_share = 0.2

[groups.a]
quota = "32MiB"
token = "secret"
[log]
level = "warn,keeper=debug"
format = "json"
)"));
  BOOST_TEST(config.node.socket == "/tmp/s");
  BOOST_TEST(config.node.runtime_dir == "/tmp/r");
  BOOST_TEST(config.node.threads == 3U);
  BOOST_TEST((config.node.drain_timeout == 1500ms));
  BOOST_TEST(config.node.max_sessions == 7U);
  BOOST_TEST(config.dram.capacity == 64 * mib);
  BOOST_TEST(config.dram.high_water == 0.9);
  BOOST_TEST(config.dram.low_water == 0.8);
  BOOST_TEST(!config.dram.populate);
  BOOST_TEST((config.dram.huge_pages == huge_pages::off));
  BOOST_TEST(config.dram.numa_node.value() == 1);
  BOOST_TEST((config.dram.integrity == integrity::commit));
  BOOST_TEST(config.dram.slab_size == mib);
  BOOST_TEST(config.session.max_pins == 11U);
  BOOST_TEST(config.session.max_grants == 12U);
  BOOST_TEST((config.session.reserve_timeout == 2min));
  BOOST_TEST((config.auth.allow_uids == std::vector<uid_t>{1000, 4294967294}));
  BOOST_TEST((config.auth.allow_gids == std::vector<gid_t>{5}));
  BOOST_TEST(config.auth.admin_gid.value() == 6U);
  BOOST_TEST(config.limits.reserve_share == 0.125);
  BOOST_TEST(config.limits.keep_share == 0.75);
  BOOST_TEST(config.limits.pin_share == 0.625);
  BOOST_TEST(config.limits.group_quota == 16 * mib);
  BOOST_TEST(config.limits.open_groups);
  BOOST_TEST(config.limits.user_quota == 8 * mib);
  BOOST_TEST(config.limits.user_keep_share == 0.2);
  BOOST_TEST(config.groups.at("a").quota == 32 * mib);
  BOOST_TEST(config.groups.at("a").token == "secret");
  BOOST_TEST(config.log.level == "warn,keeper=debug");
  BOOST_TEST((config.log.format == log_format::json));
}

BOOST_AUTO_TEST_CASE(options_override_the_environment_which_overrides_the_file_which_overrides_defaults) {
  const config_file file("[dram]\ncapacity = \"2GiB\"\nslab_size = \"2MiB\"\npopulate = false\n");
  auto sources = file.sources();
  sources.environment = {{"CENOTE_DRAM__CAPACITY", "3GiB"}, {"CENOTE_DRAM__SLAB_SIZE", "3MiB"}};
  sources.sets = {"dram.capacity=4GiB", "dram.capacity=5GiB"};
  const auto config = good(load(sources));
  BOOST_TEST(config.dram.capacity == 5 * gib);
  BOOST_TEST(config.dram.slab_size == 3 * mib);
  BOOST_TEST(!config.dram.populate);
  BOOST_TEST(config.node.max_sessions == 256U);
}

BOOST_AUTO_TEST_CASE(instance_groups_may_have_names_with_dots_and_spaces) {
  const auto config = good(load_text("[groups.\"team a\"]\nquota = 1\n[groups.\"b.c\"]\nquota = 2\n"));
  BOOST_TEST(config.groups.at("team a").quota == 1U);
  BOOST_TEST(config.groups.at("b.c").quota == 2U);
  const auto from_sets = good(load_sets({"groups.b.c.quota=2MiB", "groups.\"team a\".token=t"}));
  BOOST_TEST(from_sets.groups.at("b.c").quota == 2 * mib);
  BOOST_TEST(from_sets.groups.at("team a").token == "t");
}

BOOST_AUTO_TEST_CASE(empty_tables_are_harmless) {
  BOOST_TEST(good(load_text("[dram]\n[groups.a]\n")).groups.empty());
}

BOOST_AUTO_TEST_CASE(the_socket_and_the_runtime_directory_have_defaults) {
  auto config = good(load_sets({"node.runtime_dir=/tmp/r"}));
  BOOST_TEST(runtime_dir(config) == "/tmp/r");
  BOOST_TEST(socket_path(config) == "/tmp/r/cenote.sock");
  config = good(load_sets({"node.runtime_dir=/tmp/r", "node.socket=/tmp/s"}));
  BOOST_TEST(socket_path(config) == "/tmp/s");
  BOOST_TEST(!runtime_dir(default_config()).empty());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(refusals)

BOOST_AUTO_TEST_CASE(unknown_key_is_refused_with_the_nearest_name_and_its_line) {
  const config_file file("# comment\n[dram]\npopulate = true\ncapactiy = \"1GiB\"\n");
  refused(load(file.sources()),
          file.path().string() + ":4: unknown key `dram.capactiy`; did you mean `dram.capacity`?");
}

BOOST_AUTO_TEST_CASE(a_misspelt_section_is_refused_even_when_it_is_empty) {
  refused(load_text("[drma]\n"), "cenote.toml:1: unknown key `drma`; did you mean `dram`?");
  refused(load_text("[drma]\ncapacity = 1\n"),
          "cenote.toml:2: unknown key `drma.capacity`; did you mean `dram.capacity`?");
}

BOOST_AUTO_TEST_CASE(a_key_without_its_section_is_refused_with_the_full_name) {
  refused(load_text("capacity = \"1GiB\"\n"), "did you mean `dram.capacity`?");
}

BOOST_AUTO_TEST_CASE(a_key_like_no_other_is_refused_with_a_place_to_look) {
  refused(load_text("zzzzzzzzzz = 1\n"), "unknown key `zzzzzzzzzz`; docs/configuration.md lists all keys");
}

BOOST_AUTO_TEST_CASE(a_misspelt_key_of_an_instance_group_is_refused_with_the_groups_own_name) {
  refused(load_sets({"groups.team-a.qouta=1GiB"}),
          "--set: unknown key `groups.team-a.qouta`; did you mean `groups.team-a.quota`?");
}

BOOST_AUTO_TEST_CASE(a_section_is_not_a_value) {
  refused(load_text("dram = 5\n"), "cenote.toml:1: `dram` is a table of keys, not a value; write [dram]");
  refused(load_text("[[dram]]\ncapacity = 1\n"), "`dram` is a table of keys");
  refused(load_text("groups.a = 5\n"), "`groups.a` is a table of keys");
}

BOOST_AUTO_TEST_CASE(a_key_is_not_a_table) {
  refused(load_text("[dram.capacity]\n"), "dram.capacity = {}: must be a size");
  refused(load_text("[dram.capacity]\nbytes = 1\n"), "unknown key `dram.capacity.bytes`");
}

BOOST_AUTO_TEST_CASE(a_wrong_type_names_key_value_place_and_what_would_be_right) {
  refused(load_text("[dram]\npopulate = \"yes\"\n"), "cenote.toml:2: dram.populate = \"yes\": must be true or false");
  refused(load_text("[node]\nthreads = \"many\"\n"), "node.threads = \"many\": must be an integer, 0 to 1024");
  refused(load_text("[dram]\ncapacity = true\n"), "dram.capacity = true: must be a size such as \"4GiB\"");
  refused(load_text("[dram]\nhigh_water = \"97%\"\n"), "dram.high_water = \"97%\": must be a number, 0.1 to 1");
  refused(load_text("[auth]\nallow_uids = [\"root\"]\n"),
          "auth.allow_uids = [\"root\"]: must be a list of integers such as [1000, 1001]");
  refused(load_text("[node]\nsocket = 1979-05-27\n"), "node.socket = (a date or time): must be a string");
  refused(load_text("[node]\ndrain_timeout = 5\n"), "node.drain_timeout = 5: must be a duration such as \"250ms\"");
}

BOOST_AUTO_TEST_CASE(a_wrong_size_or_duration_says_what_is_wrong_with_it) {
  refused(load_sets({"dram.capacity=4gib"}),
          "--set: dram.capacity = \"4gib\": unknown unit `gib` in `4gib`; did you mean `GiB`?");
  refused(load_sets({"node.drain_timeout=5sec"}), "node.drain_timeout = \"5sec\": unknown unit `sec`");
  refused(load_sets({"dram.capacity="}), "dram.capacity = \"\": the value is empty");
  refused(load_text("[dram]\ncapacity = -1\n"), "dram.capacity = -1: must be a size");
}

BOOST_AUTO_TEST_CASE(a_value_out_of_range_names_the_range) {
  refused(load_sets({"dram.capacity=0"}), "dram.capacity = 0: must be a size such as \"4GiB\", 1MiB to 1PiB");
  refused(load_sets({"dram.capacity=2PiB"}), "1MiB to 1PiB");
  refused(load_sets({"node.max_sessions=0"}), "must be an integer, 1 to 4096");
  refused(load_sets({"node.max_sessions=4097"}), "must be an integer, 1 to 4096");
  refused(load_sets({"dram.high_water=1.01"}), "must be a number, 0.1 to 1");
  refused(load_sets({"dram.high_water=nan"}), "must be a number, 0.1 to 1");
  refused(load_sets({"dram.high_water=inf"}), "must be a number, 0.1 to 1");
  refused(load_sets({"auth.allow_uids=[1000, -1]"}), "auth.allow_uids = [1000, -1]: must be a list of integers");
  refused(load_sets({"session.reserve_timeout=1us"}), "100ms to 1h");
  BOOST_TEST(good(load_sets({"dram.capacity=1MiB", "node.max_sessions=4096"})).dram.capacity == mib);
}

BOOST_AUTO_TEST_CASE(a_wrong_choice_names_the_choices_and_the_nearest) {
  refused(load_sets({"dram.integrity=comit"}),
          "dram.integrity = \"comit\": must be one of leave, commit; did you mean `commit`?");
  refused(load_sets({"log.format=xml"}), "must be one of auto, text, json, journal");
  refused(load_sets({"dram.huge_pages=true"}), "dram.huge_pages = \"true\": must be one of auto, off");
}

BOOST_AUTO_TEST_CASE(an_address_to_listen_on_is_host_and_port_or_off) {
  BOOST_TEST(good(load_sets({})).metrics.listen->text() == "127.0.0.1:0");
  BOOST_TEST(good(load_sets({"metrics.listen=[::]:9400"})).metrics.listen->text() == "[::]:9400");
  BOOST_TEST(!good(load_sets({"metrics.listen=off"})).metrics.listen.has_value());
  refused(load_sets({"metrics.listen=9400"}),
          "--set: metrics.listen = \"9400\": must be HOST:PORT, as in 127.0.0.1:9400 or [::1]:9400, or off");
}

BOOST_AUTO_TEST_CASE(a_gpu_tier_needs_devices_that_there_can_be) {
  BOOST_TEST(!default_config().gpu.has_tier());
  BOOST_TEST(good(load_sets({"gpu.devices=[\"sim:0\",\"GPU-1\"]", "gpu.capacity=1GiB"})).gpu.has_tier());
  BOOST_TEST(!good(load_sets({"gpu.devices=[\"sim:0\"]"})).gpu.has_tier());
  refused(load_sets({"gpu.capacity=1GiB"}), "needs gpu.devices");
  refused(load_sets({"gpu.devices=[\"gpu0\"]"}), "`gpu0` is no device; GPU-UUID");
  refused(load_sets({"gpu.devices=[\"sim:0\",\"sim:0,fail=3\"]"}), "names sim:0 twice");
  refused(load_sets({"gpu.devices=[\"cuda:GPU-1\",\"GPU-1\"]"}), "names cuda:GPU-1 twice");
  refused(load_sets({"gpu.devices=[\"sim:0\"]", "gpu.backend=cuda"}), "must not be sim:0 with gpu.backend");
  refused(load_sets({"gpu.devices=[\"GPU-1\"]", "gpu.backend=sim"}), "must not be GPU-1 with gpu.backend");
  refused(load_sets({"gpu.devices=[\"cuda:0\"]"}), "a number is another GPU in each process");
  refused(load_sets({"gpu.devices=[\"sim:0\"]", "gpu.capacity=1KiB"}), "must be 0 (no such tier) or at least 1MiB");
  refused(load_sets({"gpu.high_water=0.5"}), "must not be below gpu.low_water = 0.94 (default)");
}

BOOST_AUTO_TEST_CASE(the_low_water_mark_may_not_be_above_the_high_one) {
  refused(load_sets({"dram.low_water=0.98"}),
          "--set: dram.low_water = 0.98: must not be above dram.high_water = 0.97 (default)");
  refused(load_sets({"dram.high_water=0.5"}),
          "--set: dram.high_water = 0.5: must not be below dram.low_water = 0.94 (default)");
  BOOST_TEST(good(load_sets({"dram.low_water=0.97"})).dram.low_water == 0.97);
  refused(load_sets({"nvme.high_water=0.5"}),
          "--set: nvme.high_water = 0.5: must not be below nvme.low_water = 0.95 (default)");
  BOOST_TEST(good(load_sets({"nvme.high_water=0.5", "nvme.low_water=0.4"})).nvme.low_water == 0.4);
}

BOOST_AUTO_TEST_CASE(a_slab_is_large_enough_for_a_page_and_not_larger_than_the_tier) {
  refused(load_sets({"dram.slab_size=4KiB"}), "must be 0 (chosen by the node) or at least 64KiB");
  refused(load_sets({"dram.slab_size=512MiB", "dram.capacity=256MiB"}),
          "dram.slab_size = \"512MiB\": must not be above dram.capacity = \"256MiB\" (--set)");
}

BOOST_AUTO_TEST_CASE(a_socket_has_a_path_that_the_kernel_takes) {
  const std::string longest = "/" + std::string(106, 's');
  BOOST_TEST(good(load_sets({"node.socket=" + longest})).node.socket == longest);
  refused(load_sets({"node.socket=" + longest + "s"}), "has 108 bytes; at most 107 are possible");
  refused(load_sets({"node.runtime_dir=/" + std::string(200, 'r')}), "node.runtime_dir");
}

BOOST_AUTO_TEST_CASE(a_path_of_the_nvme_tier_is_named_once_however_it_is_written) {
  const config_file at("");  // in a directory of its own
  const auto root = at.path().parent_path();
  std::filesystem::create_directory(root / "store");
  std::filesystem::create_directory(root / "other");
  std::filesystem::create_symlink(root / "store", root / "link");
  const auto loaded = [&](const std::string& first, const std::string& second) {
    return load_sets(
        {"nvme.paths=[" + root.string() + first + "," + root.string() + second + "]", "nvme.capacity=1GiB"});
  };
  for (const char* second : {"/store", "/store/", "/link", "/other/../store", "//store/."}) {
    refused(loaded("/store", second), "names a path twice: " + root.string() + "/store and " + root.string() + second);
  }
  refused(loaded("/new", "/new/"), "names a path twice");
  BOOST_TEST(loaded("/store", "/other").has_value());
  std::ofstream(root / "store" / "data") << "blocks";
  std::filesystem::create_symlink(root / "store" / "data", root / "other" / "data");
  refused(loaded("/store", "/other"), "are the same");
}

BOOST_AUTO_TEST_CASE(a_text_with_a_zero_byte_is_refused_since_a_path_would_end_there) {
  refused(load_text("[node]\nsocket = \"/run/a\\u0000b\"\n"), "must not have a zero byte");
  refused(load_text("[nvme]\npaths = [\"/mnt/a\\u0000b\"]\n"), "must not have a zero byte");
}

BOOST_AUTO_TEST_CASE(an_endpoint_of_events_that_nobody_could_have_is_refused) {
  for (const char* const wrong : {"tcp://host", "tcp://", "tcp://:5557", "tcp://host:70000", "ipc://", "udp://a:1"})
    refused(load_sets({std::string("publish.endpoint=") + wrong, "publish.name=n"}), "must be tcp://address:port");
  for (const char* const good_one : {"tcp://*:5557", "tcp://[::1]:5557", "tcp://host:0", "ipc:///run/events"})
    good(load_sets({std::string("publish.endpoint=") + good_one, "publish.name=n"}));
}

BOOST_AUTO_TEST_CASE(one_thread_is_refused) {
  refused(load_sets({"node.threads=1"}), "node.threads = 1: must be 0 (chosen from the machine) or at least 2");
}

BOOST_AUTO_TEST_CASE(a_bad_log_level_is_refused_with_the_nearest_name) {
  refused(load_text("[log]\nlevel = \"info,keeper=debgu\"\n"),
          "cenote.toml:2: log.level = \"info,keeper=debgu\": unknown log level `debgu`; did you mean `debug`?");
}

BOOST_AUTO_TEST_CASE(a_file_that_is_not_toml_is_refused_with_line_and_column) {
  refused(load_text("[dram]\ncapacity = \n"), "cenote.toml:2:");
  refused(load_text("[dram]\npopulate = true\npopulate = false\n"), "not TOML");
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_read_is_refused_by_name) {
  refused(load({.file = "/nowhere/cenote.toml", .environment = {}, .sets = {}}),
          "/nowhere/cenote.toml: the configuration file cannot be read: No such file or directory");
  refused(load({.file = "/tmp", .environment = {}, .sets = {}}), "it is a directory");
}

BOOST_AUTO_TEST_CASE(a_token_of_the_wrong_type_is_not_repeated_in_the_message) {
  const auto loaded = load_text("[groups.a]\ntoken = 12345\n");
  refused(loaded, "groups.a.token = (hidden): must be a string");
  BOOST_TEST(!contains(loaded.error().message(), "12345"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(showing)

BOOST_AUTO_TEST_CASE(every_value_is_shown_with_its_place) {
  const config_file file("[dram]\ncapacity = \"1024MiB\"\n");
  auto sources = file.sources();
  sources.environment = {{"CENOTE_NODE__THREADS", "4"}};
  sources.sets = {"dram.populate=false"};
  const auto config = good(load(sources));
  BOOST_TEST(shown(config, "dram.capacity").text == "\"1GiB\"");
  BOOST_TEST(shown(config, "dram.capacity").source == file.path().string() + ":2");
  BOOST_TEST(shown(config, "node.threads").source == "environment variable CENOTE_NODE__THREADS");
  BOOST_TEST(shown(config, "dram.populate").text == "false");
  BOOST_TEST(shown(config, "dram.populate").source == "--set");
  BOOST_TEST(shown(config, "log.level").source == "default");
}

BOOST_AUTO_TEST_CASE(what_is_shown_is_a_file_that_gives_the_same_configuration) {
  const auto config = good(load_sets({"dram.capacity=1.5GiB", "dram.high_water=1", "auth.allow_uids=[1,2]",
                                      "groups.b.quota=1MiB", "groups.team a.quota=2MiB", "groups.x\".y.quota=3",
                                      "log.level=info,keeper=debug", "node.socket=/tmp/a\"b\\c"}));
  const auto text = to_toml(effective(config));
  const auto again = good(load_text(text));
  BOOST_TEST_CONTEXT(text) {
    BOOST_REQUIRE(again.settings.size() == config.settings.size());
    for (const auto& [key, set] : config.settings) BOOST_TEST((again.settings.at(key).value == set.value), key);
  }
}

BOOST_AUTO_TEST_CASE(a_file_name_with_a_line_end_does_not_break_the_shown_file) {
  auto config = default_config();
  config.settings.at("dram.populate").source = "a\nb = 1";
  BOOST_TEST(load_text(to_toml(effective(config))).has_value());
}

BOOST_AUTO_TEST_CASE(tokens_are_never_shown) {
  const auto config = good(load_sets({"groups.a.token=hunter2", "groups.a.quota=1MiB", "groups.b.token=other"}));
  BOOST_TEST(shown(config, "groups.a.token").text == "(hidden)");
  const auto text = to_toml(effective(config));
  BOOST_TEST(!contains(text, "hunter2"));
  BOOST_TEST(contains(text, "[groups.a]\nquota = \"1MiB\"  # --set\n# token is set but not shown  # --set\n"), text);
  BOOST_TEST(load_text(text).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(reloading)

BOOST_AUTO_TEST_CASE(keys_that_need_a_restart_are_named) {
  const auto running = good(load_sets({"dram.capacity=1GiB"}));
  const auto wanted =
      good(load_sets({"node.threads=4", "dram.capacity=2GiB", "dram.high_water=0.99", "groups.a.quota=1MiB"}));
  BOOST_TEST((changed_unreloadable(running, wanted) == std::vector<std::string>{"dram.capacity", "node.threads"}));
}

BOOST_AUTO_TEST_CASE(the_same_value_written_otherwise_is_no_change) {
  const auto running = good(load_sets({"dram.capacity=1GiB"}));
  const auto wanted = good(load_sets({"dram.capacity=1024MiB"}));
  BOOST_TEST(changed_unreloadable(running, wanted).empty());
}

BOOST_AUTO_TEST_CASE(a_reload_takes_what_can_change_and_keeps_the_rest) {
  const auto running = good(load_sets({"dram.capacity=1GiB", "groups.a.quota=1MiB", "groups.b.quota=1MiB"}));
  const auto wanted =
      good(load_sets({"dram.capacity=2GiB", "dram.high_water=0.99", "groups.a.quota=2MiB", "log.level=debug"}));
  const auto config = good(reloaded(running, wanted));
  BOOST_TEST(config.dram.capacity == gib);
  BOOST_TEST(config.dram.high_water == 0.99);
  BOOST_TEST(config.groups.size() == 1U);
  BOOST_TEST(config.groups.at("a").quota == 2 * mib);
  BOOST_TEST(config.log.level == "debug");
  BOOST_TEST(shown(config, "dram.capacity").text == "\"1GiB\"");
}

BOOST_AUTO_TEST_SUITE_END()
