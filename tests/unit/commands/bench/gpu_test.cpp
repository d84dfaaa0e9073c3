#include <dlfcn.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <string>

#include "commands/bench/gpu_stage.hpp"
#include "tests/support/fake_cuda.h"
#include "tests/support/folders.hpp"

namespace cenote::bench {

namespace {

/// What was measured, by the first words of the case.
std::map<std::string, int> counted(const report& out) {
  std::map<std::string, int> rows;
  for (const figure& each : out.figures()) {
    for (const auto* begin : {"of ", "host to device", "device to host", "gather, ", "scatter, ", "gather within",
                              "registering", "load of"}) {
      if (each.name.starts_with(begin)) rows[each.bench + ": " + begin]++;
    }
    if (each.name.find(" by layers, runs of") != std::string::npos) rows[each.bench + ": ways"]++;
  }
  return rows;
}

std::map<std::string, int> all_rows(const std::string& bench) {
  return {{bench + ": of ", 1},      {bench + ": host to device", 1}, {bench + ": device to host", 1},
          {bench + ": gather, ", 6}, {bench + ": scatter, ", 6},      {bench + ": gather within", 1},
          {bench + ": load of", 1},  {"processor: gather, ", 2},      {"processor: scatter, ", 2}};
}

std::map<std::string, int> rows_of_a_gpu() {
  auto rows = all_rows("gpu");
  rows["gpu: load of"] = 2;
  rows["gpu: registering"] = 1;
  if (!cuda::kernel_image().empty()) rows["gpu: ways"] = 4;
  return rows;
}

/// The driver that carries calls out on host memory, under the name that a device looks for.
struct with_fake_driver {
  with_fake_driver()
      : library(::dlopen((testing::program_folder() / "fake_cuda/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL)) {
    BOOST_REQUIRE(library != nullptr);
  }
  with_fake_driver(const with_fake_driver&) = delete;
  with_fake_driver& operator=(const with_fake_driver&) = delete;
  ~with_fake_driver() {
    run_kernels(kernels);
    ::dlclose(library);
  }
  void run_kernels(fake_cuda_kernel run) const {
    reinterpret_cast<decltype(&fake_cuda_run_kernels)>(::dlsym(library, "fake_cuda_run_kernels"))(run);
  }

  void* library;
  fake_cuda_kernel kernels = reinterpret_cast<fake_cuda_kernel>(::dlsym(library, "fake_cuda_kernels_on_processor"));
};

result<void> run_quick(const std::string& device, report& out) {
  return gpu_bench::run({.socket = {}, .rounds = 1, .device = device, .quick = true}, out);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gpu_bench)

BOOST_AUTO_TEST_CASE(on_a_simulated_device_it_has_all_rows_and_none_is_a_figure_of_a_gpu) {
  report out(false);
  const auto done = run_quick("sim:0", out);
  BOOST_REQUIRE_MESSAGE(done, (done ? "" : done.error().describe()));
  BOOST_TEST((counted(out) == all_rows("gpu (sim)")));
  for (const figure& each : out.figures()) {
    BOOST_TEST(each.measured == (each.bench == "processor"), each.name);
    BOOST_TEST(each.kept().has_value() == (each.bench == "processor"), each.name);
  }
  BOOST_TEST(table_text(out.figures()).find("not measured") != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(through_the_driver_it_has_all_rows, with_fake_driver) {
  report out(false);
  const auto done = run_quick("cuda:0", out);
  BOOST_REQUIRE_MESSAGE(done, (done ? "" : done.error().describe()));
  BOOST_TEST((counted(out) == rows_of_a_gpu()));
  BOOST_TEST(out.figures().front().value == 0);  // no shape was moved wrongly
}

BOOST_FIXTURE_TEST_CASE(kernels_that_move_wrongly_end_it_before_anything_is_timed, with_fake_driver) {
  if (cuda::kernel_image().empty()) return;  // no nvcc
  run_kernels(nullptr);
  report out(false);
  const auto done = run_quick("cuda:0", out);
  BOOST_REQUIRE(!done);
  BOOST_TEST(out.figures().size() == 1U);
  BOOST_TEST(!out.figures().front().kept().value());
}

BOOST_AUTO_TEST_CASE(a_device_that_is_asked_for_and_not_there_is_no_reason_to_simulate) {
  report out(false);
  BOOST_TEST(!run_quick("cuda:GPU-none", out));
  BOOST_TEST(!run_quick("gpu", out));
  BOOST_TEST(out.figures().empty());
}

BOOST_AUTO_TEST_CASE(engines_are_killed_and_their_last_byte_is_looked_for) {
  report out(false);
  const auto done = gpu_kill_bench::run({.socket = {}, .rounds = 1, .device = "sim:0", .quick = true}, out);
  BOOST_REQUIRE_MESSAGE(done, (done ? "" : done.error().describe()));
  BOOST_REQUIRE(out.figures().size() == 1U);
  BOOST_TEST(out.figures().front().value == 0);  // its threads die with it
  BOOST_TEST(!out.figures().front().kept().has_value());
  report none(false);
  BOOST_TEST(!gpu_kill_bench::run({.socket = {}, .rounds = 1, .device = "cuda:GPU-none", .quick = true}, none));
  BOOST_TEST(none.figures().empty());
}

BOOST_AUTO_TEST_CASE(a_figure_that_is_not_measured_on_a_gpu_says_so) {
  figure each{.bench = "gpu (sim)",
              .name = "n",
              .value = 1,
              .unit = "GiB/s",
              .limit = 2,
              .promise = {bound::kind::ratio_at_least, 0.9}};
  each.measured = false;
  BOOST_TEST(!each.kept().has_value());
  BOOST_TEST(json_line(each).find(R"("note":"not measured on a GPU")") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::bench
