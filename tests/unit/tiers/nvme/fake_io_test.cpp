#include "tests/support/fake_io.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <vector>

#include "tiers/nvme/path_file.hpp"

namespace cenote::nvme::fake_io_test {

namespace {

constexpr std::uint64_t data_at = path_file::data_offset;

struct fake_fixture {
  struct alignas(sector_bytes) block {
    std::byte bytes[2 * sector_bytes] = {};
  };

  io_request request(io_kind kind, std::uint64_t tag) {
    return {.kind = kind, .offset = data_at + tag * sizeof(block), .memory = blocks.at(tag).bytes, .tag = tag};
  }
  void submit(fake_io& device, io_kind kind, std::uint64_t tag) {
    const auto one = request(kind, tag);
    device.submit({&one, 1});
  }
  io_engine::callback record() {
    return [this](std::span<const io_completion> batch) { came.insert(came.end(), batch.begin(), batch.end()); };
  }
  [[nodiscard]] std::vector<std::uint64_t> tags() const {
    std::vector<std::uint64_t> out;
    for (const auto& each : came) out.push_back(each.tag);
    return out;
  }

  std::vector<block> blocks{8};
  std::vector<io_completion> came;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(fake_device, fake_fixture)

BOOST_AUTO_TEST_CASE(it_keeps_what_is_written) {
  fake_io device(2 * data_at, fake_io::pace::at_once, record());
  std::ranges::fill(blocks[1].bytes, std::byte{7});
  submit(device, io_kind::write, 1);
  std::ranges::fill(blocks[1].bytes, std::byte{0});
  submit(device, io_kind::read, 1);
  BOOST_REQUIRE(came.size() == 2U);
  BOOST_TEST(came[0].checksum == came[1].checksum);
  BOOST_TEST((blocks[1].bytes[5000] == std::byte{7}));
}

BOOST_AUTO_TEST_CASE(faults_meet_the_requests_they_are_meant_for) {
  fake_io device(2 * data_at, fake_io::pace::at_once, record());
  device.fail_next(ENOSPC, io_kind::write);
  device.cut_next(io_kind::read);
  device.contents()[data_at] = std::byte{9};
  submit(device, io_kind::read, 0);
  submit(device, io_kind::write, 1);
  submit(device, io_kind::write, 2);
  BOOST_REQUIRE(came.size() == 3U);
  BOOST_TEST(came[0].error == EIO);
  BOOST_TEST((blocks[0].bytes[0] == std::byte{9}));
  BOOST_TEST(came[1].error == ENOSPC);
  BOOST_TEST(came[2].error == 0);
}

BOOST_AUTO_TEST_CASE(steps_come_in_the_order_asked_for) {
  fake_io device(2 * data_at, fake_io::pace::stepped, record());
  submit(device, io_kind::write, 0);
  submit(device, io_kind::write, 1);
  submit(device, io_kind::read, 2);
  BOOST_TEST(came.empty());
  BOOST_TEST(device.step());
  device.set_order(fake_io::order::newest_first);
  BOOST_TEST(device.step_all() == 2U);
  BOOST_TEST(!device.step());
  const std::vector<std::uint64_t> expected{2, 1, 0};
  BOOST_TEST(tags() == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_held_comes_when_released_and_what_waits_is_cancelled) {
  fake_io device(2 * data_at, fake_io::pace::stepped, record());
  device.hold_next();
  device.hold_next();
  for (std::uint64_t i = 0; i < 3; ++i) submit(device, io_kind::write, i);
  device.step_all();
  BOOST_TEST(device.under_way() == 2U);
  device.release();
  device.hold_next();
  submit(device, io_kind::write, 3);
  submit(device, io_kind::write, 4);
  device.stop();
  submit(device, io_kind::write, 5);
  BOOST_TEST(device.under_way() == 0U);
  const std::vector<std::uint64_t> expected{2, 0, 1, 3, 4};
  BOOST_TEST(tags() == expected, boost::test_tools::per_element());
  BOOST_TEST(came[3].error == 0);
  BOOST_TEST(came[4].error == ECANCELED);
}

BOOST_AUTO_TEST_CASE(a_callback_may_submit_more) {
  fake_io* device = nullptr;
  fake_io made(2 * data_at, fake_io::pace::at_once, [&](std::span<const io_completion> batch) {
    came.insert(came.end(), batch.begin(), batch.end());
    if (batch.back().tag < 7) submit(*device, io_kind::read, batch.back().tag + 1);
  });
  device = &made;
  submit(made, io_kind::read, 0);
  BOOST_TEST(came.size() == 8U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme::fake_io_test
