#include "services/manager/service/manager_page.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

namespace cenote::manager {

namespace {

struct page_world {
  manager_figures figures;
  usage_report usage;
  call_counts calls;
  served_view view;

  page_world() {
    view.epoch = 7;
    view.is_ready = true;
    usage.groups.push_back({.name = "team \"a\"",
                            .quota = 1000,
                            .used = 600,
                            .deleting = 100,
                            .instances = 2,
                            .is_paused = true,
                            .types = {{.type = storage_type::nfs, .quota = 800, .used = 600}}});
    usage.storages.push_back({.name = "disk",
                              .type = storage_type::nfs,
                              .condition = storage_condition::full,
                              .capacity = 5000,
                              .free_bytes = 40,
                              .used = 600,
                              .failed_deletions = 3,
                              .failure = "no space"});
    usage.instances.push_back({.id = "i", .group = "team \"a\"", .keys = 12, .used = 600});
    calls.note(rpc::start_write_cache, answer_code::ok, std::chrono::microseconds(5));
    calls.note_lookup(10, 4);
    for (std::size_t i = 0; i < figures.evicted_for.size(); ++i) figures.evicted_for[i] = 10 + i;
  }
  [[nodiscard]] page_sources sources() const {
    return {.figures = figures, .usage = usage, .calls = calls, .view = view, .dropped_lines = 3};
  }
};

void require_line(const std::string& page, const std::string& line) {
  BOOST_TEST(page.find("\n" + line + "\n") != std::string::npos, line);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(manager_page)

BOOST_AUTO_TEST_CASE(metrics_have_groups_storages_instances_and_calls) {
  const page_world world;
  const std::string page = metrics_of(world.sources()).text();
  require_line(page, R"(cenote_manager_group_used_bytes{group="team \"a\""} 600)");
  require_line(page, R"(cenote_manager_group_deleting_bytes{group="team \"a\""} 100)");
  require_line(page, R"(cenote_manager_group_type_quota_bytes{group="team \"a\"",type="ST_NFS"} 800)");
  require_line(page, R"(cenote_manager_group_paused{group="team \"a\""} 1)");
  require_line(page, R"(cenote_manager_storage_up{storage="disk",type="ST_NFS"} 1)");
  require_line(page, R"(cenote_manager_storage_full{storage="disk",type="ST_NFS"} 1)");
  require_line(page, R"(cenote_manager_storage_failed_deletions_total{storage="disk",type="ST_NFS"} 3)");
  require_line(page, R"(cenote_manager_instance_keys{instance="i",group="team \"a\""} 12)");
  require_line(page, R"(cenote_manager_requests_total{rpc="meta.StartWriteCache",code="OK"} 1)");
  require_line(page, R"(cenote_manager_request_seconds_count{rpc="meta.StartWriteCache"} 1)");
  require_line(page, "cenote_manager_lookup_keys_total 10");
  require_line(page, "cenote_manager_lookup_hits_total 4");
  require_line(page, "cenote_manager_epoch 7");
  require_line(page, R"(cenote_manager_evictions_total{reason="bytes"} 10)");
  require_line(page, R"(cenote_manager_evictions_total{reason="time"} 14)");
  require_line(page, "cenote_manager_trace_dropped_lines_total 3");
}

BOOST_AUTO_TEST_CASE(status_is_one_object_with_the_same_facts) {
  const page_world world;
  std::string status;
  append_status(world.sources(), status);
  BOOST_TEST(status.starts_with(R"({"version":)"));
  BOOST_TEST(status.ends_with("}\n"));
  BOOST_TEST(status.find(R"("ready":true,"epoch":7,)") != std::string::npos);
  BOOST_TEST(status.find(R"({"name":"team \"a\"","quota_bytes":1000,"used_bytes":600,"deleting_bytes":100,)"
                         R"("instances":2,"reclaim_paused":true,"types":[{"type":"ST_NFS","quota_bytes":800,)"
                         R"("used_bytes":600,"deleting_bytes":0}]})") != std::string::npos);
  BOOST_TEST(status.find(R"("condition":"full")") != std::string::npos);
  BOOST_TEST(status.find(R"("evicted_for":{"bytes":10,"type":11,"storage":12,"keys":13,"time":14},)"
                         R"("trace_dropped_lines":3,)") != std::string::npos);
  BOOST_TEST(status.find(R"("failure":"no space")") != std::string::npos);
  BOOST_TEST(status.find(R"({"id":"i","group":"team \"a\"","keys":12,)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(no_two_figures_have_a_name_in_common) {
  for (const manager_figure& one : manager_figure_rows) {
    for (const manager_figure& other : manager_figure_rows) {
      BOOST_TEST((&one == &other || (one.name != other.name && one.metric != other.metric)), one.name);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
