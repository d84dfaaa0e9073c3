#include "services/indexer/discovery/pod_table.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

namespace cenote::indexer::test {

namespace {

std::string pod(const std::string& name, const std::string& address, const std::string& phase = "Running",
                const std::string& metadata = "") {
  return R"({"metadata":{"name":")" + name + R"(","namespace":"team","resourceVersion":"7")" + metadata +
         R"(},"status":{"phase":")" + phase + R"(","podIP":")" + address + R"("}})";
}

std::string page(const std::string& items, const std::string& next = "", const std::string& version = "5") {
  return R"({"kind":"PodList","metadata":{"resourceVersion":")" + version + R"(","continue":")" + next +
         R"("},"items":[)" + items + "]}";
}

std::string change(const std::string& type, const std::string& object) {
  return R"({"type":")" + type + R"(","object":)" + object + "}\n";
}

pod_table listed(const std::string& items) {
  pod_table made;
  made.begin_list();
  BOOST_REQUIRE(made.add_page(page(items)).has_value());
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(discovered_pods)

BOOST_AUTO_TEST_CASE(a_list_takes_effect_when_its_last_page_has_come) {
  pod_table pods = listed(pod("old", "10.0.0.9"));
  pods.begin_list();
  BOOST_TEST(pods.add_page(page(pod("a", "10.0.0.1"), "more")).value() == "more");
  BOOST_TEST((pods.pods() == pod_addresses{{"team/old", "10.0.0.9"}}));
  BOOST_TEST(pods.add_page(page(pod("b", "fd00::2"), "", "6")).value().empty());
  BOOST_TEST((pods.pods() == pod_addresses{{"team/a", "10.0.0.1"}, {"team/b", "fd00::2"}}));
  BOOST_TEST(pods.version() == "6");
}

BOOST_AUTO_TEST_CASE(a_list_that_breaks_off_leaves_no_pod_of_it) {
  pod_table pods = listed(pod("old", "10.0.0.9"));
  pods.begin_list();
  BOOST_TEST(pods.add_page(page(pod("a", "10.0.0.1"), "more")).has_value());
  pods.begin_list();
  BOOST_TEST(pods.add_page(page(pod("b", "10.0.0.2"))).has_value());
  BOOST_TEST((pods.pods() == pod_addresses{{"team/b", "10.0.0.2"}}));
}

BOOST_AUTO_TEST_CASE(only_pods_that_run_and_have_an_address_count) {
  const pod_table pods =
      listed(pod("waits", "10.0.0.1", "Pending") + "," + pod("done", "10.0.0.2", "Succeeded") + "," +
             pod("nowhere", "") + "," + pod("word", "example.org") + "," + pod("port", "10.0.0.1:80") + "," +
             pod("ends", "10.0.0.3", "Running", R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")") + "," +
             pod("runs", "10.0.0.4"));
  BOOST_TEST((pods.pods() == pod_addresses{{"team/runs", "10.0.0.4"}}));
}

BOOST_AUTO_TEST_CASE(changes_add_move_and_remove_pods) {
  pod_table pods = listed(pod("a", "10.0.0.1"));
  pods.begin_watch();
  BOOST_TEST(pods.add_changes(change("ADDED", pod("b", "10.0.0.2"))).value().has_changes);
  BOOST_TEST(pods.add_changes(change("MODIFIED", pod("a", "10.0.0.5"))).value().has_changes);
  BOOST_TEST((pods.pods() == pod_addresses{{"team/a", "10.0.0.5"}, {"team/b", "10.0.0.2"}}));
  BOOST_TEST(!pods.add_changes(change("MODIFIED", pod("a", "10.0.0.5"))).value().has_changes);
  BOOST_TEST(pods.add_changes(change("MODIFIED", pod("a", "10.0.0.5", "Failed"))).value().has_changes);
  BOOST_TEST(pods.add_changes(change("DELETED", pod("b", "10.0.0.2"))).value().has_changes);
  BOOST_TEST(!pods.add_changes(change("DELETED", pod("b", "10.0.0.2"))).value().has_changes);
  BOOST_TEST(pods.pods().empty());
  BOOST_TEST(pods.version() == "7");
}

BOOST_AUTO_TEST_CASE(changes_may_be_cut_anywhere) {
  const std::string text = change("ADDED", pod("a", "10.0.0.1")) + change("ADDED", pod("b", "10.0.0.2")) +
                           change("DELETED", pod("a", "10.0.0.1"));
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    pod_table pods = listed("");
    pods.begin_watch();
    BOOST_TEST(pods.add_changes(text.substr(0, cut)).has_value());
    BOOST_TEST(pods.add_changes(text.substr(cut)).has_value());
    BOOST_TEST((pods.pods() == pod_addresses{{"team/b", "10.0.0.2"}}));
  }
}

BOOST_AUTO_TEST_CASE(half_a_line_of_a_watch_is_no_part_of_the_next) {
  pod_table pods = listed("");
  pods.begin_watch();
  BOOST_TEST(pods.add_changes(R"({"type":"ADD)").has_value());
  pods.begin_watch();
  BOOST_TEST(pods.add_changes(change("ADDED", pod("a", "10.0.0.1"))).value().has_changes);
  BOOST_TEST(pods.refused() == 0U);
}

BOOST_AUTO_TEST_CASE(bookmarks_move_the_version_alone) {
  pod_table pods = listed(pod("a", "10.0.0.1"));
  BOOST_TEST(!pods.add_changes(change("BOOKMARK", R"({"metadata":{"resourceVersion":"99"}})")).value().has_changes);
  BOOST_TEST(pods.version() == "99");
  BOOST_TEST(pods.pods().size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_version_that_is_too_old_asks_for_a_list_and_other_errors_end_the_watch) {
  pod_table pods = listed(pod("a", "10.0.0.1"));
  BOOST_TEST(pods.add_changes(change("ERROR", R"({"code":410,"message":"too old"})")).value().is_expired);
  const auto refused = pods.add_changes(change("ERROR", R"({"code":500,"message":"no quorum"})"));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().message().find("no quorum") != std::string::npos);
  BOOST_TEST(pods.pods().size() == 1U);
}

BOOST_AUTO_TEST_CASE(what_is_no_list_is_refused) {
  pod_table pods = listed(pod("a", "10.0.0.1"));
  pods.begin_list();
  for (const char* const text :
       {"", "{", "[]", "null", "{}", R"({"metadata":{"resourceVersion":5},"items":[]})",
        R"({"metadata":{"resourceVersion":"5"},"items":{}})", R"({"metadata":[],"items":[]})"}) {
    BOOST_TEST(!pods.add_page(text).has_value(), text);
  }
  BOOST_TEST(pods.pods().size() == 1U);
}

BOOST_AUTO_TEST_CASE(lines_and_pods_that_cannot_be_read_are_passed_over_and_counted) {
  pod_table pods = listed(R"(7,null,{"metadata":{"name":"../x","namespace":"team"}},)" + pod("a", "10.0.0.1"));
  BOOST_TEST(pods.refused() == 3U);
  BOOST_TEST(pods.add_changes("no json\n" + change("ADDED", "[]") + change("ADDED", pod("b", "10.0.0.2")))
                 .value()
                 .has_changes);
  BOOST_TEST(pods.refused() == 5U);
  BOOST_TEST(pods.pods().size() == 2U);
}

BOOST_AUTO_TEST_CASE(pods_and_lines_are_bounded) {
  pod_table pods = listed("");
  std::string text;
  for (std::size_t i = 0; i < pod_table::most_pods + 10; ++i) {
    text += change("ADDED", pod("p" + std::to_string(i), "10.0.0.1"));
  }
  BOOST_TEST(pods.add_changes(text).has_value());
  BOOST_TEST(pods.pods().size() == pod_table::most_pods);
  BOOST_TEST(pods.refused() == 10U);
  BOOST_TEST(pods.add_changes(change("MODIFIED", pod("p3", "10.0.0.2"))).value().has_changes);
  const std::string half(pod_table::most_line / 2 + 1, 'x');
  BOOST_TEST(pods.add_changes(half).has_value());
  BOOST_TEST(!pods.add_changes(half).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer::test
