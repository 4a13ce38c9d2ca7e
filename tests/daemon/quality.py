"""A labelled set for the quality of recall: notes as agents write them, each with one query that it answers.

*lexical* queries share telling words with their note, as one who remembers the words would ask; *paraphrase* queries
ask the same in other words, so that only meaning can find it. All notes stand in one workspace, each the distractor of
all others, together with ``DISTRACTORS``: notes on the same topics and in the same words that answer none of the
queries.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Pair(NamedTuple):
    """A note, a query it answers, and whether words or only meaning lead from one to the other."""

    note: str
    query: str
    half: Literal["lexical", "paraphrase"]


def _pairs(half: Literal["lexical", "paraphrase"], table: str) -> tuple[Pair, ...]:
    lines = (line.partition(" => ") for line in table.strip().splitlines())
    return tuple(Pair(note.strip(), query.strip(), half) for query, _, note in lines)


ENGLISH = _pairs(
    "lexical",
    """
which port does staging use => Staging listens on port 8443, not 443, because the load balancer terminates TLS.
parse_invoice rounding => parse_invoice must round half to even; the auditors compare every total with their own sheet.
retry limit of the payment webhook => The payment webhook is retried five times; after that it lands in the dead letter queue.
PytestUnraisableExceptionWarning => A PytestUnraisableExceptionWarning in CI means a socket was left open in test_gateway.py.
getUserProfile cache => getUserProfile is cached for 60 seconds on purpose, the profile service has no rate limiting.
src/billing/tax.py => Never import pandas in src/billing/tax.py: the lambda has a package limit of 50 MB.
how to run database migrations => Run database migrations with make migrate before the deploy, never from inside a container.
--allow-dangerous flag => The --allow-dangerous flag of the cleanup script also deletes snapshots; ask first.
version v1.2.3 of libfoo => libfoo stays pinned to v1.2.3 until the memory leak in the 1.3 branch is fixed.
who approves schema changes => Schema changes need approval from Priya and one more reviewer of the data team.
redis maxmemory policy => Production Redis runs with maxmemory-policy noeviction; writes fail rather than keys vanish.
date format in the export => The CSV export uses the date format DD.MM.YYYY, the customer's importer knows no other.
useEffect in Dashboard => The useEffect in Dashboard.tsx must keep its empty dependency list or charts reload forever.
error E_QUOTA_EXCEEDED => E_QUOTA_EXCEEDED from the mail API clears at midnight UTC; do not retry before.
timezone of cron jobs => All cron jobs run in the timezone Europe/Berlin, so they move with summer time.
indentation tabs or spaces => The user wants tabs for indentation in Go and four spaces everywhere else.
feature flag new_checkout => The feature flag new_checkout is on for one percent of visitors until the end of May.
SECRET_KEY_BASE rotation => Rotating SECRET_KEY_BASE logs every user out, so do it on Sunday night.
kubernetes namespace for previews => Preview environments live in the kubernetes namespace pr-previews and vanish after three days.
OrderService.submit deadlock => OrderService.submit can deadlock with refund jobs; take the customer lock first.
docs/adr/0007-queues.md => Why we left Kafka is written in docs/adr/0007-queues.md.
max upload size => The maximum upload size is 25 MB, set in nginx and once more in upload_limits.yaml.
grpc keepalive => gRPC keepalive must stay under 30 seconds, the corporate proxy drops idle streams.
commit message style => Commit messages start with an imperative verb and name the ticket in the last line.
backup of the postgres cluster => Backups of the postgres cluster are taken at 02:00 and kept for 35 days in the Frankfurt bucket.
flaky test test_login_redirect => test_login_redirect is flaky on Firefox only; it is quarantined, do not delete it.
license header => Every source file needs the Apache license header, the build fails without it.
APP_ENV=qa => With APP_ENV=qa outgoing mail goes to a sink; nothing reaches real people.
/etc/amnesia/limits.toml => Limits of the shared host are in /etc/amnesia/limits.toml and owned by the platform team.
websocket heartbeat interval => The websocket heartbeat interval is 20 s; phones sleep and drop the connection otherwise.
C++ standard of the engine => The engine is compiled as C++17 since the console toolchain lags behind.
NullPointerException in ReportJob => The NullPointerException in ReportJob comes from customers without a billing address.
""",
) + _pairs(
    "paraphrase",
    """
how do I make the program start faster => Lazy imports cut launch time of the command line tool from 900 to 200 ms.
what does the customer dislike => The client hates pop-up windows and asked us twice to get rid of them.
when is it safe to release => No deployments on Fridays or the day before a public holiday.
who should I ask about money matters => Invoices and refunds are handled by Dana from accounting.
is it ok to remove old records => Nothing may be erased from the ledger tables: regulators demand ten years of history.
favourite programming language of the boss => Our manager prefers Rust and will push for it in every review.
what broke last night => The nightly import crashed because the disk of the worker ran full.
how do people sign in => Authentication goes through the company's single sign-on; passwords were abolished.
why is the website slow => Page loads drag since the image resizing was moved onto the request thread.
do we support old phones => Devices with Android 8 or below are no longer catered for.
where are pictures kept => Photos are stored in an S3 bucket behind a CDN.
what should answers to the user look like => She wants short replies, without bullet points, and never any emoji.
how can I undo a bad rollout => To roll back, point the traffic switch at the previous colour and wait a minute.
our meeting rhythm => The team syncs every Tuesday and Thursday at half past nine.
which tests can be skipped => The browser suite may be left out on documentation-only changes.
how do we talk to the warehouse => Stock levels come by nightly SFTP files from the logistics partner.
is personal information protected => Names and addresses are encrypted at rest, each tenant with its own key.
what happens when the internet is down => Offline the app queues edits and merges them once there is a connection again.
the vehicle of the founder => The CEO drives a green convertible and parks it at the loading dock.
any food restrictions for the offsite => Two colleagues are vegan and one cannot eat nuts.
how expensive is the cloud => We spend about 14,000 euros a month on AWS, two thirds of it for the GPU nodes.
can I use the new syntax => Python 3.9 is the floor, so no match statements and no union types with a bar.
why did we choose this database => Postgres won over MongoDB because the reports join everything with everything.
how long may a request take => Handlers have to finish within eight seconds or the gateway cuts them off.
who owns the mobile client => The iOS and Android apps belong to the Lisbon squad.
how should numbers be displayed => Amounts are shown with a comma for decimals and a thin space between thousands.
what is the holiday schedule => The office is closed from Christmas Eve until the second of January.
is the search engine case sensitive => Lookups ignore upper and lower letters and accents.
how do I get access to the servers => SSH keys are handed out by the ops desk; file a ticket and attach your public key.
what is the child's school problem => Her son struggles with maths and gets tutoring on Mondays.
how do we avoid double charging => Every charge carries an idempotency token, so a repeated call does not bill twice.
what makes the laptop hot => The type checker in watch mode keeps all cores busy and the fan on.
""",
)

CJK = _pairs(
    "lexical",
    """
腾讯云 部署 => 用户服务部署在腾讯云的上海节点，域名在阿里云备案。
数据库密码轮换 => 数据库密码每九十天轮换一次，由运维组负责。
登录页面的验证码 => 登录页面的验证码在三次失败之后才出现。
parse_order 函数 => parse_order 函数不处理退款，退款走另一个队列。
中文注释 => 代码里的中文注释要保留，客户的工程师会看。
缓存过期时间 => 商品缓存过期时间是十分钟，大促期间改成一分钟。
周报 截止时间 => 周报截止时间是每周五下午四点，发给王经理。
微信支付回调 => 微信支付回调必须在五秒内返回成功，否则会重复通知。
src/utils/日期.py => 时区换算都放在 src/utils/日期.py，不要另写。
ステージング環境のポート => ステージング環境のポートは8080番で、本番とは違う。
請求書の締め日 => 請求書の締め日は毎月二十五日です。
ログレベル => 本番のログレベルはWARNING以上にする。
しりとり => 子供たちは夕食のあとにしりとりをするのが好きだ。
API 키 만료 => API 키는 만료 전에 이메일로 알림이 온다.
배포 순서 => 배포 순서는 워커 먼저, 그다음 웹 서버다.
테스트 데이터베이스 초기화 => 테스트 데이터베이스는 매일 새벽 세 시에 초기화된다.
""",
) + _pairs(
    "paraphrase",
    """
老板喜欢喝什么 => 总经理每天早上要一杯美式咖啡，不加糖。
网站打不开怎么办 => 服务宕机时先重启网关，再查看监控面板。
怎样节省服务器费用 => 夜间自动关停测试机器，每月少花三成。
用户住在哪里 => 客户的家在杭州西湖区。
什么时候不能上线 => 周五以及节假日前一天禁止发布。
他对什么食物过敏 => 小李不能吃花生和海鲜。
图片存放位置 => 照片都保存在对象存储里，前面有加速。
怎么联系财务 => 报销问题请找会计小陈。
为什么选这个框架 => 采用它是因为团队都熟悉，文档也齐全。
社長の趣味は何ですか => 代表は週末によく釣りに出かける。
プログラムが遅い理由 => 画像の縮小を同期で行うため応答に時間がかかる。
会議はいつですか => 毎週火曜の朝九時半に全員で打ち合わせをする。
ペットについて => 彼女は猫を二匹飼っている。
고객이 싫어하는 것 => 의뢰인은 팝업 창을 몹시 불편해한다.
회의 시간이 언제인가요 => 팀 미팅은 매주 화요일 오전 아홉 시 반이다.
서버 비용을 줄이는 방법 => 밤에는 시험용 장비를 꺼서 지출을 아낀다.
""",
)

PAIRS = (*ENGLISH, *CJK)

DISTRACTORS = tuple(
    """
The port of Hamburg is where the hardware shipment waits for customs.
Staging data is a copy of production with the names replaced.
The load balancer health check uses port 9000 on every environment.
parse_receipt and parse_statement share one tokenizer.
Invoices are numbered without gaps, one sequence a country.
The webhook of the chat bot has no retries at all.
A warning in CI does not fail the build on feature branches.
The profile picture service belongs to the media team.
user_profile is a view, not a table.
src/billing/__init__.py re-exports nothing on purpose.
pandas is fine in notebooks and in the reporting image.
Database connections are pooled by pgbouncer in transaction mode.
The cleanup script runs each hour and removes temporary files.
libbar is at v2.1.3 and needs no pin.
Reviewers are assigned in turn by the bot.
The data team meets in room 4.
Redis in tests is fakeredis; production has its own cluster.
The JSON export has ISO dates and is used by nobody but us.
Dashboard.tsx is generated, edit the template instead.
The mail API key is kept in the vault under mail/prod.
Summer interns start in July.
The user likes spaces around operators.
The feature flag service caches answers for a minute.
Checkout takes three steps, the old one took five.
Kubernetes upgrades happen in the first week of a quarter.
OrderService reads its prices from the catalog snapshot.
Queues are named after the team that consumes them.
nginx is configured by the platform team only.
Uploads are scanned for viruses in the background.
The corporate proxy needs a certificate on every laptop.
Ticket numbers begin with the code of the project.
The Frankfurt bucket is for backups, the Dublin one for assets.
test_logout is slow since it waits for the session to expire.
Firefox is tested weekly, Safari before releases.
The build takes nine minutes, four of them for the docs.
QA has its own chat channel and no access to logs.
The shared host is rebooted on the first Sunday of the month.
Phones get push messages through one gateway for both platforms.
The console toolchain ships twice a year.
ReportJob writes PDF files to the archive bucket.
Customers in Norway have no VAT number.
The command line tool prints JSON when its output is a pipe.
The client asked for a dark theme in spring.
Public holidays differ between the two offices.
Tables of the warehouse schema are refreshed hourly.
The worker disks have 200 GB each.
Answers of the API carry a request id.
The traffic report is sent each Monday.
The app's icon was redrawn for the new brand.
GPU nodes are reserved for the training jobs at night.
用户表有三个索引，其中一个已经不用。
上海办公室在三楼，杭州办公室在七楼。
域名每年续费一次，由行政部负责。
测试环境的数据库每周重建。
验证码短信由第三方服务发送。
退款需要客服主管批准。
大促期间客服加班到晚上十点。
日志保存三十天之后自动清理。
王经理下周出差，邮件由小李处理。
支付页面的按钮改成了绿色。
本番環境の証明書は三月に更新する。
請求先の住所は営業部が管理している。
夕食の買い物は水曜日に済ませる。
ポートフォリオの更新は四半期ごとに行う。
이메일 서식은 디자인 팀이 관리한다.
웹 서버는 두 대이고 워커는 여섯 대다.
새벽에는 알림을 보내지 않는다.
데이터 분석 결과는 매달 공유한다.
""".strip().splitlines()
)


def notes() -> dict[str, str]:
    """Every note of the set by id; ``p7`` answers the query of ``PAIRS[7]``."""
    found = {f"p{number}": pair.note for number, pair in enumerate(PAIRS)}
    return found | {f"d{number}": text for number, text in enumerate(DISTRACTORS)}
